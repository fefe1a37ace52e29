"""How people speak of a table of household objects, and how a robot asks and answers.

`references` is what a noun phrase can mean, `words` and `phrases` how it is put, `typing_errors`
how it comes out, `asking` the questions, `answering` what somebody with one object in mind says to
them, `episodes` whole dialogues with the truth at every moment, `person` the oracle that is asked.
"""

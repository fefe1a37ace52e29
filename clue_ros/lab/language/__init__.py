"""People's language about a table: references, questions, answers and whole dialogues."""

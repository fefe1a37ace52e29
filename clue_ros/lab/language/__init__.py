"""How people speak of a table: references, questions, answers and whole dialogues."""

"""Text: what is done to characters, and how they become subword ids."""

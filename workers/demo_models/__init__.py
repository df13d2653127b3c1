"""The models that the repository ships or prepares for demos: how they are made and measured."""

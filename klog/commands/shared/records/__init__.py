"""Records on their way to and from text: which are selected, how they are shown, how they are parsed."""

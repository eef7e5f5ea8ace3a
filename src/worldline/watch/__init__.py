"""`worldline watch`: worlds live in a browser, with their physics under sliders."""

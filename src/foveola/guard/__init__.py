"""May this be asked, may this be said: wrappers around an answerer, and what they are made of."""

"""The embedded model: where its pictures, questions and weights come from, and how good it is."""

"""Long-tail repair: the vision tower learns from the line's own records without losing what it knew."""

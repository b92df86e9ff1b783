"""A camera, or a vehicle with one: frames and motion in, answers out; what did not change is not looked at again."""

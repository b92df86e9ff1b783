"""What Flower loads: the apps of `foveola.learn.federate.flower`."""

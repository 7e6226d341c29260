"""Traffic on an edition's exact scheduler, in simulated time."""

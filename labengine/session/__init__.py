"""Behind the front desk: turns, steps by hand and in the background, requests checked, outputs and figures."""

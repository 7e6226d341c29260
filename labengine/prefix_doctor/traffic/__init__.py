"""Where prompts come from: files of prompts, traces, recordings."""

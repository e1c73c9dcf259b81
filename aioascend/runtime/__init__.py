"""What runs beside the caller: process-wide state, device threads, streams, completions, the pipeline."""

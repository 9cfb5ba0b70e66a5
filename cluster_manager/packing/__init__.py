"""The packing mechanism: best fit, consolidation, the choice of GPUs, the score of locality."""

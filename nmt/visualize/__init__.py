"""Pictures: attention heatmaps whose Chinese can be read."""

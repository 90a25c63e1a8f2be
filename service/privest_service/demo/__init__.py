"""The main job shown on real data: `privest demo`."""

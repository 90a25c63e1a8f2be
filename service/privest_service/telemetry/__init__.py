"""Telemetry: logs, metrics and traces for whoever runs the service. Nothing in it may depend on a row.

So it holds no value, no text that somebody else wrote, and no duration of anything that rows have a part
in. Moments are told in whole seconds: finer ones of when runs begin and end would tell how long they took.
"""

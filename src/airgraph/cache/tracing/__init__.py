"""From a call of a function to a cached graph: Dynamo and AOTAutograd at work, nothing executed."""

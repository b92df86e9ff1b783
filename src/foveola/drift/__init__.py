"""Are the pictures still like the reference: heat maps and visual features, with a known rate of false alarms."""

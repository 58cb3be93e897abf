"""The Load lab tab: many requests at their own times, by several ways on the same arrivals."""

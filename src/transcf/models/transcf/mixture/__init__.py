"""TransCF's mixture of translations: one moved point for each item of a history."""

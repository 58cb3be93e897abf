"""Tables of the documents, written from the results that they show."""

"""What more replicas bring, measured on one machine."""

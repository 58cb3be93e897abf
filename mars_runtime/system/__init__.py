"""What is known about this machine: processor, memory, cache folder, proxies."""

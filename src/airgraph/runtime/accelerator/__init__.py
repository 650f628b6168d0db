"""What devices with graphs of their own share, whose torch module looks like torch.cuda."""

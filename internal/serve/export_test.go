package serve

// OpenLeases is how many leases a Server has.
func OpenLeases(s *Server) int {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	return s.leases.n
}

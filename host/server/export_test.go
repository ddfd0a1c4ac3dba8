package server

import "context"

// EndpointsForTest lists the endpoints of s, and those that its description of
// them names, each as method and path.
func (s *Server) EndpointsForTest(ctx context.Context) (endpoints, described []string) {
	for _, ep := range s.fixed {
		endpoints = append(endpoints, ep.method+" "+ep.path)
	}
	for _, op := range s.operations(s.mounted(ctx)) {
		described = append(described, op.Method+" "+op.Path)
	}
	return endpoints, described
}

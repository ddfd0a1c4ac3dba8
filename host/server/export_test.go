package server

import (
	"context"
	"strings"
)

// EndpointsForTest lists the endpoints of s, and those that its description of
// them names, each as method and path. The parts of the page are left out.
func (s *Server) EndpointsForTest(ctx context.Context) (endpoints, described []string) {
	for _, ep := range s.fixed {
		if !strings.HasPrefix(ep.path, assetsPath) {
			endpoints = append(endpoints, ep.method+" "+ep.path)
		}
	}
	for _, op := range s.operations(s.mounted(ctx)) {
		described = append(described, op.Method+" "+op.Path)
	}
	return endpoints, described
}

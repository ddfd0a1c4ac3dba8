// Command empty links what the product links and does nothing: what a start of
// the product is held against.
package main

import (
	"fmt"
	"os"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// linked keeps the packages in the program.
func linked() {
	goplugin.Serve(&goplugin.ServeConfig{GRPCServer: func([]grpc.ServerOption) *grpc.Server { return grpc.NewServer() }})
}

func main() {
	if len(os.Args) > 1 {
		linked()
	}
	fmt.Println("empty")
}

//go:build keep

// Package keep holds the dependencies until their users are written.
package keep

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	_ "github.com/aws/aws-sdk-go-v2/config"
	_ "github.com/aws/aws-sdk-go-v2/credentials"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/dgraph-io/ristretto/v2"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/semaphore"
	_ "golang.org/x/sys/unix"
)

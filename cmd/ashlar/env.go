package main

import (
	"regexp"
	"strings"
)

const envPrefix = "ASHLAR_"

// envName returns the variable that sets the key at path: ASHLAR_BUCKETS__FETCH__FIRST_BYTE for
// buckets.fetch.first_byte.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// serviceLink says whether a variable is one that Kubernetes sets in every container of a namespace that has a Service
// called ashlar or ashlar-something (and Docker's links did before it): ASHLAR_SERVICE_HOST=10.0.0.1,
// ASHLAR_PORT_9000_TCP_ADDR=10.0.0.1, ASHLAR_PORT=tcp://10.0.0.1:9000. Nobody typed those, so they are no mistyped
// keys. A name with two underscores in a row is never one.
func serviceLink(name, value string) bool {
	if strings.Contains(name, "__") {
		return false
	}
	return regexp.MustCompile(
		`^ASHLAR_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`,
	).MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

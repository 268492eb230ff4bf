package main

import (
	"github.com/ashlar-s3/ashlar/blockstore/disk"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
)

// What the configuration says to the parts of a node. What they need of each other is filled in where they are made.

func (c *Config) originConfig() s3origin.Config {
	return s3origin.Config{
		Endpoint:      c.Origin.Endpoint,
		Region:        c.Origin.Region,
		VirtualHosted: c.Origin.VirtualHosted,
		Credentials:   c.Origin.Credentials.toSign(),
		MaxIdleConns:  max(256, 2*c.Cache.OriginConcurrency), // forwarded requests have connections too
		CAFile:        c.Origin.CA,
	}
}

// toSign is what requests are signed with.
func (c *Credentials) toSign() s3origin.Credentials {
	return s3origin.Credentials{
		Source: c.Source, Profile: c.Profile, AccessKey: c.AccessKey,
		SecretKey: string(c.Secret), SessionToken: string(c.SessionToken),
	}
}

func (c *Config) diskConfig() disk.Config {
	return disk.Config{
		Dir:        c.Cache.Disk.Path,
		Capacity:   int64(c.Cache.Disk.Capacity),
		RegionSize: int64(c.Cache.Disk.RegionSize),
		MaxBlock:   int64(c.largestBlock()),
		DirectIO:   c.Cache.Disk.DirectIO,
		Recover:    disk.Recover(c.Cache.Disk.Recover),
		IndexLimit: int64(c.Cache.diskIndex()) / 17 * 16, // the rest is for marks of what was turned away
		QueueLimit: int64(min(disk.DefaultQueueLimit, c.Cache.Memory/4)),
		ReadLimit:  int64(c.Cache.Memory / 8),
		Reserve:    int64(c.Cache.Disk.Reserve),
	}
}

func (c *Config) engineConfig() gateway.Config {
	return gateway.Config{
		Policy:               c.policies(),
		InfoMemory:           int64(c.Cache.InfoMemory),
		OriginConcurrency:    c.Cache.OriginConcurrency,
		ReadaheadConcurrency: c.Cache.ReadaheadConcurrency,
		HedgeConcurrency:     c.Cache.HedgeConcurrency,
		CachesBehind:         c.gateway(),
	}
}

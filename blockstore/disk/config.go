package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/prometheus/client_golang/prometheus"
)

// Recover says what Open does with what a former process left.
type Recover string

const (
	RecoverQuiet  Recover = "quiet"  // take what is whole; skip, count and remove what is not
	RecoverNone   Recover = "none"   // remove it all and start empty
	RecoverStrict Recover = "strict" // as quiet, but refuse to start when something is damaged
)

// Defaults of Config.
const (
	DefaultRegionSize  = 64 << 20
	DefaultQueueLimit  = 64 << 20
	DefaultReadLimit   = 64 << 20
	DefaultReadTimeout = time.Second
)

// Config says where a tier lives and how large it may be. All sizes are in bytes.
type Config struct {
	// Dir is the directory; it is made when it is missing. One process at a time may use it, and nobody else should
	// keep files there: region files that are not the tier's own are removed.
	Dir string
	// Origin names the source of the blocks. What was kept for another Origin is dropped by Open: names and tags of
	// one source mean nothing to another.
	Origin string
	// Capacity is what the files may occupy together, those that are deleted and still read included. At least
	// MinCapacity(RegionSize).
	Capacity int64
	// RegionSize is the size of one file, and what is reclaimed at once. 0 means 64 MiB. It must hold two of the
	// largest blocks. Files of another size, of a former configuration, are used and reclaimed as they are.
	RegionSize int64
	// MaxBlock is the length of the largest block. Larger ones are not kept.
	MaxBlock int64
	// DirectIO reads and writes past the page cache.
	DirectIO bool
	// Recover is RecoverQuiet when empty.
	Recover Recover
	// Slots is where Get reads into.
	Slots blockstore.Slots
	// IndexLimit bounds the memory of the index, at 64 bytes per block; the oldest region is reclaimed when it is
	// reached. 0 means no limit but the capacity.
	IndexLimit int64
	// QueueLimit bounds the blocks that wait to be written; the queue holds references to them. What does not fit is
	// dropped. 0 means 64 MiB.
	QueueLimit int64
	// ReadLimit bounds the slots of reads that the disk has not answered, those included that nobody waits for any more:
	// what a disk that stalls takes from Slots. Others wait for their turn. It holds one block at least, and no more
	// than 128. 0 means 64 MiB.
	ReadLimit int64
	// ReadTimeout is how long Get waits before it answers that the block is not here: for its turn and a slot half of
	// it, for the disk what is left. 0 means 1 s.
	ReadTimeout time.Duration
	// Reserve is what is left free of the filesystem, whoever fills it.
	Reserve int64
	// Logger gets a line when the tier takes itself out and when it comes back, and what was found at the start. Nil
	// logs nothing.
	Logger *slog.Logger
	// Registerer gets the tier's metrics; Close takes them out again. Nil registers nothing.
	Registerer prometheus.Registerer
}

// minRegions is the fewest files a tier works with: one being written, one kept free so that a new file never waits for
// an old one to be given up, and two to read from.
const minRegions = 4

// MinCapacity returns the smallest Capacity that Open accepts for files of regionSize bytes (0 means 64 MiB).
func MinCapacity(regionSize int64) int64 {
	if regionSize == 0 {
		regionSize = DefaultRegionSize
	}
	return (minRegions + 1) * regionSize
}

// MinRegion returns the smallest RegionSize that Open accepts for blocks of up to maxBlock bytes: two of them fit.
func MinRegion(maxBlock int64) int64 { return roundUp(2*maxRecord(maxBlock)+2*pageSize, pageSize) }

// normalize applies the defaults and says what is wrong.
func (c *Config) normalize() error {
	if c.RegionSize == 0 {
		c.RegionSize = DefaultRegionSize
	}
	if c.QueueLimit == 0 {
		c.QueueLimit = DefaultQueueLimit
	}
	if c.ReadLimit == 0 {
		c.ReadLimit = DefaultReadLimit
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = DefaultReadTimeout
	}
	if c.Recover == "" {
		c.Recover = RecoverQuiet
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Dir == "":
		return errors.New("disk: no directory")
	case c.Slots == nil:
		return errors.New("disk: no slots to read into")
	case c.MaxBlock < 1 || c.MaxBlock > maxPayload:
		return fmt.Errorf("disk: largest block of %d bytes, want 1 to %d", c.MaxBlock, maxPayload)
	case c.RegionSize%pageSize != 0 || c.RegionSize > maxRegion:
		return fmt.Errorf("disk: regions of %d bytes, want a multiple of %d up to %d",
			c.RegionSize, pageSize, maxRegion)
	case c.RegionSize < MinRegion(c.MaxBlock):
		return fmt.Errorf("disk: regions of %d bytes are too small for blocks of %d bytes: want at least %d",
			c.RegionSize, c.MaxBlock, MinRegion(c.MaxBlock))
	case c.Capacity < MinCapacity(c.RegionSize):
		return fmt.Errorf("disk: a capacity of %d bytes is too small for regions of %d bytes: want at least %d",
			c.Capacity, c.RegionSize, MinCapacity(c.RegionSize))
	case c.Recover != RecoverQuiet && c.Recover != RecoverNone && c.Recover != RecoverStrict:
		return fmt.Errorf("disk: recover = %q, want quiet, none or strict", c.Recover)
	}
	return nil
}

// Package latencies draws delays as origins have them: most around a median, some far behind it. For test doubles.
package latencies

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Distribution is log-normal, but for a share that is late.
type Distribution struct {
	Median time.Duration
	Sigma  float64 // standard deviation of the logarithm; 0 is always the median, 0.2 an origin at ease
	Late   float64 // share, 0 to 1, of those that take LateBy instead
	LateBy time.Duration
}

// Source draws from a Distribution, in an order that its seed decides. Safe for concurrent use.
type Source struct {
	d   Distribution
	mu  sync.Mutex
	rng *rand.Rand // guarded by mu
}

// New returns a source.
func New(d Distribution, seed uint64) *Source {
	return &Source{d: d, rng: rand.New(rand.NewPCG(seed, 0))}
}

// Draw returns the next delay.
func (s *Source) Draw() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	late, z := s.rng.Float64() < s.d.Late, s.rng.NormFloat64()
	if late {
		return s.d.LateBy
	}
	return time.Duration(float64(s.d.Median) * math.Exp(s.d.Sigma*z))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A system takes tasks and has workers end them.
type system interface {
	// fill puts n tasks in, quickly.
	fill(ctx context.Context, run string, n int) error
	// submit puts one task in, durably.
	submit(ctx context.Context, key string, i int) error
	// work starts workers, and the function returned stops them.
	work(ctx context.Context) (stop func() error, err error)
	// ended waits until n tasks that were put in since work began have ended, durably.
	ended(ctx context.Context, n int) error
	close()
}

// A contender is a system in a comparison.
type contender struct {
	name    string
	lacks   string // what it does not write, or does not do
	share   int    // it gets one in so many of the tasks: it is slow
	rounds  int    // it takes part in the first so many rounds; 0 for all
	counted bool   // its database is the MySQL whose counters are read
	system
}

// tasks is how many of n tasks it gets, in whole hundreds: systems are filled by batches.
func (c *contender) tasks(n int) int { return max(100, n/max(1, c.share)/100*100) }

// often is how often an end is looked for: rarely enough not to be what is measured.
const often = 10 * time.Millisecond

// waitUntil is how all systems wait for an end.
func waitUntil(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("tasks did not end: %w", ctx.Err())
		case <-time.After(often):
		}
	}
}

const tooLong = 5 * time.Minute // for one run

// drainRate fills a system and returns how many tasks its workers end per second, from
// the moment at which they are told to connect. Before it begins it calls begin.
func drainRate(ctx context.Context, s system, run string, n int, begin func() error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	if err := s.fill(ctx, run, n); err != nil {
		return 0, err
	}
	if err := begin(); err != nil {
		return 0, err
	}
	from := time.Now()
	stop, err := s.work(ctx)
	if err != nil {
		return 0, err
	}
	err = s.ended(ctx, n)
	took := time.Since(from)
	return float64(n) / took.Seconds(), errors.Join(err, stop())
}

// finishRate has clients submit n single tasks to a system whose workers are there, and
// returns how many per second have ended when all have. Before it begins it calls begin.
func finishRate(ctx context.Context, s system, run string, clients, n int, begin func() error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	stop, err := s.work(ctx)
	if err != nil {
		return 0, err
	}
	const warm = 200
	if err := s.fill(ctx, run+"-warm", warm); err != nil {
		return 0, errors.Join(err, stop())
	}
	if err := errors.Join(s.ended(ctx, warm), begin()); err != nil {
		return 0, errors.Join(err, stop())
	}
	from := time.Now()
	_, err = rate(clients, n, func(i int) error { return s.submit(ctx, fmt.Sprintf("%s-%d", run, i), i) })
	if err == nil {
		err = s.ended(ctx, warm+n)
	}
	took := time.Since(from)
	return float64(n) / took.Seconds(), errors.Join(err, stop())
}

func atOnce() error { return nil }

// A contest runs contenders in turn, the first against each of the others.
type contest struct {
	o          options
	what       string
	contenders []*contender
	servers    []*privateServer
	ratios     map[string]*ratio
	costs      map[string][]cost
}

func newContest(o options, what string, contenders []*contender) *contest {
	return &contest{o: o, what: what, contenders: contenders, ratios: make(map[string]*ratio), costs: make(map[string][]cost)}
}

func (c *contest) close() {
	for _, x := range c.contenders {
		x.close()
	}
	for _, p := range c.servers {
		p.close()
	}
}

// A trial lets a system end n tasks and returns how many per second. It calls begin when
// everything is prepared.
type trial func(ctx context.Context, s system, run string, n int, begin func() error) (float64, error)

// run runs rounds in which each contender runs once, beginning with another one in each.
func (c *contest) run(ctx context.Context, w *workshop, n int, once trial) error {
	for round := range c.o.pairs {
		rates := make(map[string]float64)
		for i := range c.contenders {
			x := c.contenders[(i+round)%len(c.contenders)]
			if x.rounds > 0 && round >= x.rounds {
				continue
			}
			var err error
			if rates[x.name], err = c.once(ctx, w, x, round, x.tasks(n), once); err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			if c.o.verbose {
				fmt.Printf("  round %d: %-22s %7.0f/s\n", round+1, x.name, rates[x.name])
			}
		}
		c.add(rates)
	}
	c.print()
	return nil
}

// once runs a contender and notes what its database did.
func (c *contest) once(ctx context.Context, w *workshop, x *contender, round, tasks int, once trial) (float64, error) {
	w.settle(ctx)
	var before counters
	end := func(int) error { return nil }
	rate, err := once(ctx, x.system, fileName(fmt.Sprintf("%s-%s-%d", c.what, x.name, round)), tasks, func() (err error) {
		if end, err = c.watch(ctx, x, round); err == nil {
			before, err = w.counters(ctx)
		}
		return err
	})
	after, failed := w.counters(ctx)
	if err = errors.Join(err, failed, end(tasks)); err == nil && x.counted {
		c.costs[x.name] = append(c.costs[x.name], after.since(before, tasks))
	}
	return rate, err
}

func (c *contest) add(rates map[string]float64) {
	first := c.contenders[0].name
	for _, x := range c.contenders[1:] {
		if _, ran := rates[x.name]; !ran {
			continue
		}
		if c.ratios[x.name] == nil {
			c.ratios[x.name] = &ratio{name: fmt.Sprintf("%s, to %s", c.what, x.name)}
		}
		c.ratios[x.name].add(rates[first], rates[x.name])
	}
}

func (c *contest) print() {
	for _, x := range c.contenders[1:] {
		if r := c.ratios[x.name]; r != nil {
			r.print()
			if x.lacks != "" {
				fmt.Printf("%-28s %s\n", "", x.lacks)
			}
		}
	}
	for _, x := range c.contenders {
		printCosts(c.what+", "+x.name, c.costs[x.name])
	}
}

// counter counts what has ended, for systems whose workers run in this process.
type counter struct {
	atomic.Int64
	from int64
}

func (c *counter) begin() { c.from = c.Load() }

func (c *counter) since() int { return int(c.Load() - c.from) }

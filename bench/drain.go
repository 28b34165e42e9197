package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/orbitkit/orbit/server"
)

// benchDrain compares how fast worker processes end tasks that are there already.
func benchDrain(ctx context.Context, o options) error {
	c, w, err := taskContest(ctx, o, fmt.Sprintf("drain %d", o.tasks))
	if err != nil {
		return err
	}
	defer c.close()
	return c.run(ctx, w, o.tasks, drainRate)
}

const submitters = 64 // that submit single tasks at one time

// benchFinish compares how fast single submits of many clients become ended tasks.
func benchFinish(ctx context.Context, o options) error {
	c, w, err := taskContest(ctx, o, fmt.Sprintf("finish, %d submitters", submitters))
	if err != nil {
		return err
	}
	defer c.close()
	ours := c.contenders[0].system.(*orbitSystem)
	web, err := newWebLoop(ctx, o, ours.nodes[0].creds, ours.bodies[0])
	if err != nil {
		return err
	}
	c.contenders = append(c.contenders, &contender{name: "the loop behind HTTP", counted: true, system: web})
	return c.run(ctx, w, o.tasks/2, func(ctx context.Context, s system, run string, n int, begin func() error) (float64, error) {
		return finishRate(ctx, s, run, submitters, n, begin)
	})
}

// taskContest sets our server against the hand-written loop, itself without grouping, and
// what others have made, as far as their databases are installed. The workshop is that of
// our server: counters are read through it.
func taskContest(ctx context.Context, o options, what string) (*contest, *workshop, error) {
	ours, err := newOrbitSystem(ctx, o, server.Config{})
	if err != nil {
		return nil, nil, err
	}
	list := []*contender{{name: "ours", counted: true, system: ours}}
	c := newContest(o, what, nil)
	fail := func(err error) (*contest, *workshop, error) {
		c.contenders = list
		c.close()
		return nil, nil, err
	}
	floor, err := newFloorLoop(ctx, o, ours.nodes[0].creds)
	if err != nil {
		return fail(err)
	}
	list = append(list, &contender{name: floorName, counted: true, system: floor})
	o.explain = "" // one profile of a worker is enough
	alone, err := newOrbitSystem(ctx, o, server.Config{Ungrouped: true})
	if err != nil {
		return fail(err)
	}
	list = append(list, &contender{name: "ours without grouping", system: alone, share: 4, rounds: o.peers, counted: true})
	if o.peers > 0 {
		more, err := c.peers(ctx)
		list = append(list, more...)
		if err != nil {
			return fail(err)
		}
	}
	c.contenders = list
	return c, ours.w, nil
}

// peers starts what others have made.
func (c *contest) peers(ctx context.Context) (list []*contender, err error) {
	pg, err := startPostgres(ctx, pingPostgres)
	switch {
	case errors.Is(err, errMissing):
		fmt.Println("River is left out:", err)
	case err != nil:
		return nil, err
	default:
		c.servers = append(c.servers, pg)
		for _, tuned := range []bool{false, true} {
			s, err := newRiverSystem(ctx, pg, tuned)
			if err != nil {
				return list, err
			}
			x := &contender{name: "River default", lacks: riverLacks, share: 2, rounds: c.o.peers, system: s}
			if tuned {
				x.name, x.share = "River tuned", 1
			}
			list = append(list, x)
		}
	}
	redis, err := startRedis(ctx, pingRedis)
	switch {
	case errors.Is(err, errMissing):
		fmt.Println("Asynq is left out:", err)
	case err != nil:
		return list, err
	default:
		c.servers = append(c.servers, redis)
		list = append(list, &contender{name: "Asynq, fsync always", lacks: asynqLacks, share: 2, rounds: c.o.peers, system: newAsynqSystem(redis, c.o.capacity)})
	}
	return list, nil
}

// watch looks where the time of one run of ours and one of the floor goes, if that is
// asked for, in the first round. The function returned ends it.
func (c *contest) watch(ctx context.Context, x *contender, round int) (end func(tasks int) error, err error) {
	none := func(int) error { return nil }
	switch s := x.system.(type) {
	case *orbitSystem:
		return s.w.watch(ctx, c.o, round, c.what+", "+x.name)
	case *floorLoop:
		return s.w.watch(ctx, c.o, round, c.what+", "+x.name)
	}
	return none, nil
}

// watch looks where the time of a run on w goes, if that is asked for, in the first round.
func (w *workshop) watch(ctx context.Context, o options, round int, what string) (end func(tasks int) error, err error) {
	none := func(int) error { return nil }
	if o.explain == "" || round != 0 {
		return none, nil
	}
	log := statementLog{w}
	if err := log.open(ctx); err != nil {
		return none, err
	}
	stop, err := profile(filepath.Join(o.explain, fileName(what)+".pprof"))
	if err != nil {
		return none, err
	}
	return func(tasks int) error { return errors.Join(stop(), log.print(ctx, what, tasks)) }, nil
}

// profile writes a CPU profile until the function returned is called.
func profile(path string) (end func() error, err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

func fileName(text string) string {
	name := []byte(text)
	for i, b := range name {
		if b == ' ' || b == ',' {
			name[i] = '-'
		}
	}
	return string(name)
}

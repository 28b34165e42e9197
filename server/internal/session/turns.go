package session

// Turns are items that wait, by who has put them there: owners take turns, so that who has
// many waiting delays nobody else by more than one item each. Items of one owner keep their
// order. The zero value is empty. It is not safe for concurrent use.
type turns[T any] struct {
	lines map[any]*line[T]
	next  []*line[T] // the turn is that of the first
	count int
}

// A line is what one owner has waiting.
type line[T any] struct {
	owner any
	items []T
}

func (t *turns[T]) len() int { return t.count }

func (t *turns[T]) push(owner any, item T) {
	l := t.lines[owner]
	if l == nil {
		if t.lines == nil {
			t.lines = make(map[any]*line[T])
		}
		l = &line[T]{owner: owner}
		t.lines[owner] = l
		t.next = append(t.next, l)
	}
	l.items = append(l.items, item)
	t.count++
}

// peek returns the item whose turn it is. There must be one.
func (t *turns[T]) peek() *T { return &t.next[0].items[0] }

// pop removes and returns the item whose turn it is. There must be one.
func (t *turns[T]) pop() T {
	l := t.next[0]
	item := l.items[0]
	var none T
	l.items[0] = none // what it holds may go
	l.items = l.items[1:]
	t.next[0], t.next = nil, t.next[1:]
	if len(l.items) > 0 {
		t.next = append(t.next, l)
	} else {
		delete(t.lines, l.owner)
	}
	if t.count--; t.count == 0 {
		*t = turns[T]{} // let the memory of a burst go
	}
	return item
}

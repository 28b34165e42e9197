package session

// A rankable knows whether it comes before another, and its place in a heap.
type rankable[T any] interface {
	before(T) bool
	at() *int32 // its index in the heap, counted from 1; 0 while it is not there
}

// A ranked is a heap: the first is before all others. What is in it knows its place there,
// so that it can be taken out of the middle. The zero value is empty.
type ranked[T rankable[T]] []T

func (r *ranked[T]) add(x T) {
	if *x.at() != 0 {
		return
	}
	*r = append(*r, x)
	*x.at() = int32(len(*r))
	r.up(len(*r) - 1)
}

func (r *ranked[T]) remove(x T) {
	i, last := int(*x.at())-1, len(*r)-1
	if i < 0 {
		return
	}
	r.swap(i, last)
	var none T
	(*r)[last] = none
	*r = (*r)[:last]
	*x.at() = 0
	if i < last {
		r.down(i)
		r.up(i)
	}
	if last == 0 {
		*r = nil // let the memory go
	}
}

// fix puts x where it belongs after its rank has changed. It must be there.
func (r *ranked[T]) fix(x T) {
	r.down(int(*x.at()) - 1)
	r.up(int(*x.at()) - 1)
}

func (r *ranked[T]) up(i int) {
	for i > 0 && (*r)[i].before((*r)[(i-1)/2]) {
		r.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (r *ranked[T]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*r); child++ {
			if (*r)[child].before((*r)[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.swap(i, least)
		i = least
	}
}

func (r *ranked[T]) swap(i, j int) {
	h := *r
	h[i], h[j] = h[j], h[i]
	*h[i].at(), *h[j].at() = int32(i+1), int32(j+1)
}

/* Lease and guard of one resource key, for the model checker Spin. README.md of this
 * folder explains it in plain words; make model runs it with every set of switches.
 *
 * Time does not exist here: whoever is not moved by the checker is paused, and it tries
 * every pause of everybody. A step in d_step is one database transaction.
 *
 * Switches (-D):
 *   RAISE        workers raise the resource before their first effect
 *   RESTORE      the resource is restored once from a backup that knows nothing
 *   DRILL        ... and is raised to the server's tokens before it takes writes
 *   OVERLAP      claims that nobody writes once a successor has begun to work
 *   LEASE        claims that nobody writes once the own lease has ended and a successor
 *                has been given a higher token
 *   TWO_STEPS    broken guard: asks for the highest token first and writes later
 *   FORGETFUL    broken guard: keeps no record of operations
 *   HASTY        broken reconciler: looks up without raising first
 */

#define ATTEMPTS 3
#define TASKS    2
#define NOBODY   255

/* The server: one key, its version, who holds the permit. A grant and a release each take
 * one number, so the number after a token (its fence_token) is no attempt's. */
byte version;
byte holder = NOBODY;
byte granted;            /* attempts so far */
byte token[ATTEMPTS];    /* 0: not granted yet */
byte task[ATTEMPTS] = {0, 0, 1}; /* the second is a retry of the first; attempts of a task do one operation */
bool ended[ATTEMPTS];    /* the lease has ended by the server's clock */

/* The resource: what a guard stores. */
byte highest;
byte owner = NOBODY;     /* attempt that the highest token belongs to */
bool recorded[TASKS];
bool closed;             /* takes no writes, during the drill */

/* What the checker alone can see. */
byte seen;               /* highest token that the resource has ever accepted */
byte written[TASKS];     /* how often each operation has had its effect */
bool refused[ATTEMPTS];
bool begun[ATTEMPTS];    /* has begun to work under its token */
byte absent[TASKS];      /* highest token under which it was declared "never will be" */

inline release() {
	ended[holder] = true;
	holder = NOBODY;
	version++
}

active proctype Server() {
	byte t;
end:	do
	:: d_step { holder == NOBODY && granted < ATTEMPTS ->
		assert(version + 1 > t);                 /* tokens strictly grow */
		version++;
		t = version;
		token[granted] = version;
		holder = granted;
		granted++;
		printf("server: attempt %d is given token %d\n", holder, version) }
	:: d_step { holder != NOBODY ->
		printf("server: the lease of attempt %d ends; it does not know yet\n", holder);
		release() }
	od
}

/* admits: the token is not too low and belongs to this attempt. */
#define admits(a) (token[a] > highest || (token[a] == highest && owner == a))

inline keepHighest(a) {
	if
	:: token[a] > highest -> highest = token[a]; owner = a
	:: else
	fi;
	if
	:: token[a] > seen -> seen = token[a]
	:: else
	fi
}

/* write is the effect itself, with all that must hold at this moment. */
inline write(a) {
	assert(token[a] >= seen);                        /* none after a higher token was seen */
	assert(!refused[a]);                             /* who was refused stays refused */
	assert(token[a] > absent[task[a]]);              /* what was declared absent stays so */
#ifdef OVERLAP
	assert(a + 1 >= granted || !begun[a + 1]);
	assert(a + 2 >= granted || !begun[a + 2]);
#endif
	if
	:: ended[a] -> printf("resource: attempt %d WRITES with token %d, although its lease has ended: the highest token that has arrived is %d\n", a, token[a], highest)
	:: else -> printf("resource: attempt %d writes with token %d\n", a, token[a])
	fi;
#ifdef LEASE
	assert(!ended[a] || granted == a + 1);
#endif
	keepHighest(a);
#ifndef FORGETFUL
	recorded[task[a]] = true;
#endif
	written[task[a]]++;
	assert(written[task[a]] <= 1)                    /* each operation at most once */
}

/* apply is Guard.Apply in the owner's transaction. */
inline apply(a) {
#ifdef TWO_STEPS
	if
	:: d_step { admits(a) && !recorded[task[a]] && !closed -> printf("resource: attempt %d asks, and may write\n", a) };
	   d_step { write(a) }
	:: else
	fi
#else
	d_step {
		if
		:: closed
		:: else ->
			if
			:: admits(a) && !recorded[task[a]] -> write(a)
			:: admits(a) && recorded[task[a]] ->
				printf("resource: attempt %d is told what was done\n", a);
				keepHighest(a)
			:: else ->
				printf("resource: attempt %d is refused, token %d is below %d or not its own\n", a, token[a], highest);
				refused[a] = true
			fi
		fi
	}
#endif
}

/* A worker does one attempt. It may die at any moment and may send its write twice, as
 * one does who has lost the answer. */
proctype Worker(byte a) {
	byte sent;
	token[a] != 0;
#ifdef RAISE
	d_step {
		if
		:: admits(a) && !closed ->
			printf("resource: attempt %d raises to token %d\n", a, token[a]);
			keepHighest(a)
		:: else -> refused[a] = true
		fi
	};
	if
	:: refused[a] -> goto done
	:: else
	fi;
#endif
	d_step { begun[a] = true; printf("worker: attempt %d begins to work\n", a) };
	do
	:: sent < 2 -> sent++; apply(a)
	:: goto done
	od;
done:	if
	:: d_step { holder == a -> release(); printf("server: attempt %d reports its end\n", a) }
	:: true                                          /* died */
	fi
}

/* The reconciler asks what became of an attempt whose lease has ended. */
active proctype Reconciler() {
	byte a;
end:	do
	:: a < ATTEMPTS - 1 -> a++
	:: d_step { ended[a] && !closed ->
#ifndef HASTY
		if                                       /* to the fence_token, which is nobody's */
		:: token[a] + 1 > highest -> highest = token[a] + 1; owner = NOBODY
		:: else                                  /* a later attempt has fenced it already */
		fi;
		if
		:: token[a] + 1 > seen -> seen = token[a] + 1
		:: else
		fi;
		printf("reconciler: raises the resource to %d\n", highest)
#else
		printf("reconciler: looks up attempt %d without raising\n", a)
#endif
	};
		d_step {
		if
		:: !recorded[task[a]] && token[a] > absent[task[a]] ->
			absent[task[a]] = token[a];
			printf("reconciler: attempt %d has not written and never will\n", a)
		:: else
		fi };
		break
	od
}

#ifdef RESTORE
/* The backup is from before the first write: the effects are gone with the records. What
 * others have been promised since is not. */
active proctype Restorer() {
	byte i;
	d_step {
		highest = 0;
		owner = NOBODY;
		for (i : 0 .. TASKS - 1) { recorded[i] = false; written[i] = 0; absent[i] = 0 };
		printf("resource: restored from a backup, the highest token is 0 again\n");
#ifdef DRILL
		closed = true
	};
	d_step {
		highest = version;
		closed = false;
		printf("resource: raised to the server's version %d, takes writes again\n", version);
#endif
	}
}
#endif

init {
	atomic { run Worker(0); run Worker(1); run Worker(2) }
}

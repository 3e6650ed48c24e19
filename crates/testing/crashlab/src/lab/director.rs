//! The scheduler for shuttle: it chooses the thread that takes the next step.
//!
//! Logical thread 0 prepares a run and checks it. Whenever it can run it does, without a decision.
//! Among the other threads a [`Policy`] decides. A thread may also be *frozen*: after a given
//! number of its steps it continues only when all others have ended.

use std::cell::{Cell, RefCell};

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::domain::with_recorder;
use pando_index::random::Random;

/// The steps among which PCT places its changes: a fixed number, so that a seed replays a run.
const PCT_STEPS: u64 = 512;

/// The rule of decisions.
#[derive(Clone, Debug)]
pub enum Policy {
    /// A switch to another thread at each step with a chance of one in `sojourn`.
    Random {
        /// Average number of steps of a thread without a switch.
        sojourn: u64,
    },
    /// Probabilistic concurrency testing (Burckhardt and others, 2010): random priorities, and
    /// `changes` steps at which the running thread gets the lowest priority.
    Pct {
        /// Number of changes of priority.
        changes: u64,
    },
    /// `leader` as long as it can run; then the others, at random.
    Led {
        /// The logical thread that runs first.
        leader: usize,
    },
    /// Every schedule with at most `preemptions` switches away from a thread that could continue.
    Exhaustive {
        /// The bound.
        preemptions: u32,
    },
}

/// A thread that is stopped until all others have ended.
#[derive(Clone, Copy, Debug)]
pub struct Freeze {
    /// The logical thread.
    pub task: usize,
    /// The number of its steps before.
    pub after: u64,
}

impl Freeze {
    /// In one run of three a thread is stopped, often early.
    pub fn drawn(random: &mut Random) -> Option<Self> {
        random.one_in(3).then(|| {
            let most = 4 << random.below(8);
            Self { task: 1 + random.below(3) as usize, after: random.below(most) }
        })
    }
}

/// The orders for the next run.
#[derive(Clone, Debug)]
pub struct Orders {
    /// Seed of the random policies.
    pub seed: u64,
    /// The rule of decisions.
    pub policy: Policy,
    /// The thread that is stopped.
    pub freeze: Option<Freeze>,
}

type Next = Box<dyn FnMut() -> Option<Orders>>;

thread_local! {
    /// Makes the orders for the next run; `None` ends the runs.
    static NEXT: RefCell<Option<Next>> = const { RefCell::new(None) };
    static BODY: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    /// Whether the exhaustive policy has run all schedules.
    static COMPLETE: Cell<bool> = const { Cell::new(false) };
    /// Whether in the last run a thread was frozen while others could run.
    static HAS_FROZEN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the exhaustive policy has run all schedules.
pub fn is_complete() -> bool {
    COMPLETE.get()
}

/// Whether in the last run the thread to be frozen reached its step while others could run.
pub fn has_frozen() -> bool {
    HAS_FROZEN.get()
}

/// Runs `body` once for each of the orders that `next` makes.
pub fn direct(next: impl FnMut() -> Option<Orders> + 'static, body: impl FnMut() + 'static) {
    NEXT.set(Some(Box::new(next)));
    BODY.set(Some(Box::new(body)));
    COMPLETE.set(false);
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    // Recovery and checks take no steps of shuttle. The crash lab counts its own steps.
    config.max_steps = MaxSteps::None;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(Director::default(), config).run(|| {
        let mut body = BODY.take().expect("one run at a time");
        body();
        BODY.set(Some(body));
    });
    NEXT.set(None);
    BODY.set(None);
}

/// One decision of the exhaustive policy: the choice taken, and the number of choices.
#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: usize,
    of: usize,
}

#[derive(Default)]
struct Director {
    orders: Option<Orders>,
    random: Random,
    /// Priorities of PCT, by thread; the highest runs.
    priorities: Vec<u64>,
    changes: Vec<u64>,
    steps: u64,
    /// Decisions of the exhaustive policy.
    choices: Vec<Choice>,
    depth: usize,
    preemptions: u32,
}

impl Director {
    fn decide(&mut self, able: &[usize], current: Option<usize>) -> usize {
        let can_stay = current.filter(|current| able.contains(current));
        let policy = self.orders.as_ref().map(|orders| orders.policy.clone());
        match policy {
            Some(Policy::Random { sojourn }) => match can_stay {
                Some(current) if self.random.below(sojourn) != 0 => current,
                _ => able[self.random.below(able.len() as u64) as usize],
            },
            Some(Policy::Pct { .. }) => {
                if let Some(current) = can_stay
                    && self.changes.contains(&self.steps)
                {
                    self.priorities[current] = self.changes.len() as u64
                        - self.changes.iter().filter(|&&at| at < self.steps).count() as u64;
                }
                able.iter().copied().max_by_key(|&task| self.priority(task)).unwrap_or(able[0])
            }
            Some(Policy::Led { leader }) => match can_stay {
                _ if able.contains(&leader) => leader,
                Some(current) if self.random.below(4) != 0 => current,
                _ => able[self.random.below(able.len() as u64) as usize],
            },
            Some(Policy::Exhaustive { preemptions }) => {
                // The first choice is to continue, which is no preemption.
                let mut order: Vec<usize> = can_stay.into_iter().collect();
                if can_stay.is_none() || self.preemptions < preemptions {
                    order.extend(able.iter().filter(|&&task| Some(task) != can_stay));
                }
                if self.depth == self.choices.len() {
                    self.choices.push(Choice { taken: 0, of: order.len() });
                }
                let choice = self.choices[self.depth];
                assert_eq!(choice.of, order.len(), "the replayed run differs");
                self.depth += 1;
                if can_stay.is_some() && choice.taken > 0 {
                    self.preemptions += 1;
                }
                order[choice.taken]
            }
            None => able[0],
        }
    }

    fn priority(&mut self, task: usize) -> u64 {
        while self.priorities.len() <= task {
            let drawn = (1 << 32) + self.random.below(1 << 32);
            self.priorities.push(drawn);
        }
        self.priorities[task]
    }

    /// Advances to the next schedule; whether there is one.
    fn advance(&mut self) -> bool {
        while let Some(last) = self.choices.last_mut() {
            last.taken += 1;
            if last.taken < last.of {
                return true;
            }
            self.choices.pop();
        }
        false
    }
}

impl Scheduler for Director {
    fn new_execution(&mut self) -> Option<Schedule> {
        let exhaustive = |orders: &Orders| matches!(orders.policy, Policy::Exhaustive { .. });
        if self.orders.as_ref().is_some_and(exhaustive) && !self.advance() {
            COMPLETE.set(true);
            return None;
        }
        let orders = NEXT.with_borrow_mut(|next| next.as_mut().and_then(|next| next()))?;
        HAS_FROZEN.set(false);
        self.random = Random::new(orders.seed);
        self.priorities.clear();
        self.changes.clear();
        if let Policy::Pct { changes } = orders.policy {
            self.changes = (0..changes).map(|_| self.random.below(PCT_STEPS)).collect();
        }
        (self.steps, self.depth, self.preemptions) = (0, 0, 0);
        let schedule = Schedule::new(orders.seed);
        self.orders = Some(orders);
        Some(schedule)
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        _is_yielding: bool,
    ) -> Option<TaskId> {
        let mut able: Vec<usize> = runnable.iter().map(|task| usize::from(task.id())).collect();
        if able.contains(&0) {
            return Some(TaskId::from(0));
        }
        if able.len() > 1
            && let Some(Freeze { task, after }) = self.orders.as_ref().and_then(|it| it.freeze)
            && with_recorder(|recorder| recorder.steps_of(task)) >= after
        {
            let before = able.len();
            able.retain(|&one| one != task);
            HAS_FROZEN.set(HAS_FROZEN.get() || able.len() < before);
        }
        let next = match able[..] {
            [only] => only,
            _ => self.decide(&able, current.map(usize::from)),
        };
        self.steps += 1;
        Some(TaskId::from(next))
    }

    fn next_u64(&mut self) -> u64 {
        self.random.draw()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// The orders of the steps of two threads with two steps each, and whether these are all.
    fn traces(preemptions: u32) -> (HashSet<Vec<usize>>, usize, bool) {
        let seen: Rc<RefCell<(HashSet<Vec<usize>>, usize)>> = Rc::default();
        let seeing = Rc::clone(&seen);
        let policy = Policy::Exhaustive { preemptions };
        let orders = Orders { seed: 1, policy, freeze: None };
        let body = move || {
            let trace: Arc<Mutex<Vec<usize>>> = Arc::default();
            let thread = |number: usize| {
                let trace = Arc::clone(&trace);
                shuttle::thread::spawn(move || {
                    for _ in 0..2 {
                        shuttle::thread::yield_now();
                        trace.lock().expect("one at a time").push(number);
                    }
                })
            };
            let threads = [1, 2].map(thread);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            let mut seen = seeing.borrow_mut();
            seen.1 += 1;
            seen.0.insert(trace.lock().expect("over").clone());
        };
        direct(move || Some(orders.clone()), body);
        let (traces, runs) = seen.borrow().clone();
        (traces, runs, is_complete())
    }

    #[test]
    fn without_preemptions_one_thread_comes_after_the_other() {
        let (traces, runs, complete) = traces(0);
        assert_eq!(traces, HashSet::from([vec![1, 1, 2, 2], vec![2, 2, 1, 1]]));
        assert!(complete);
        assert_eq!(runs, 2);
    }

    #[test]
    fn with_enough_preemptions_every_order_is_tried() {
        let (traces, _, complete) = traces(9);
        assert_eq!(traces.len(), 6, "the ways to merge two sequences of two");
        assert!(complete);
    }
}

//! Work that is divided between the processors.

/// Calls `f` for every item, on as many threads as there are processors. Returns the results that are not `None`, in the
/// order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> Option<R> + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    if threads < 2 {
        return items.iter().filter_map(&f).collect();
    }
    // Neighbours in heat go to different threads.
    let share = |thread: usize| -> Vec<(usize, R)> {
        let own = items.iter().enumerate().skip(thread).step_by(threads);
        own.filter_map(|(index, item)| Some((index, f(item)?))).collect()
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        // A panic there is a panic here.
        handles.into_iter().flat_map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

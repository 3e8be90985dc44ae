//! Divides work between the processors.

/// Calls `f` for every item, on as many threads as there are processors. Returns the results that are not `None`, in the
/// order of the items.
pub fn in_parallel<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    f: impl Fn(T) -> Option<R> + Sync,
) -> Vec<R> {
    let items: Vec<T> = items.into_iter().collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    if threads < 2 {
        return items.into_iter().filter_map(&f).collect();
    }
    // Neighbouring items often take similarly long (procedures are sorted by samples), so they go to different threads.
    let mut shares: Vec<Vec<(usize, T)>> = (0..threads).map(|_| Vec::new()).collect();
    items.into_iter().enumerate().for_each(|(index, item)| shares[index % threads].push((index, item)));
    let work = |share: Vec<(usize, T)>| -> Vec<(usize, R)> {
        share.into_iter().filter_map(|(index, item)| Some((index, f(item)?))).collect()
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = shares.into_iter().map(|share| scope.spawn(|| work(share))).collect();
        // A panic in a thread becomes a panic of the caller.
        handles.into_iter().flat_map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

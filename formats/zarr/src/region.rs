//! Copies rectangular regions between arrays in row-major order, and numbers their elements.

use std::ops::Range;

/// Returns the number of elements of an array, or `None` if there are too many.
pub(crate) fn elements(shape: &[u64]) -> Option<u64> {
    shape
        .iter()
        .try_fold(1_u64, |all, own| all.checked_mul(*own))
}

/// Calls `each` with the index of every element of an array, in row-major order.
pub(crate) fn each_index(shape: &[u64], mut each: impl FnMut(&[u64])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        each(&index);
        let mut next = false;
        for (at, length) in index.iter_mut().zip(shape).rev() {
            *at += 1;
            if *at < *length {
                next = true;
                break;
            }
            *at = 0;
        }
        if !next {
            return;
        }
    }
}

/// Returns the number of an element in row-major order.
pub(crate) fn ravel(index: impl IntoIterator<Item = u64>, shape: &[u64]) -> u64 {
    let pairs = index.into_iter().zip(shape);
    pairs.fold(0, |number, (at, length)| number * length + at)
}

/// Copies a part of one array into another, both in row-major order.
///
/// `from_start` is the first index of the part in `from`, and `to_start` the one in `to`. `item` is the number of bytes
/// of an element. Parts that do not lie inside both arrays are not copied.
pub fn copy_region(
    from: (&[u8], &[u64]),
    from_start: &[u64],
    to: (&mut [u8], &[u64]),
    to_start: &[u64],
    extent: &[u64],
    item: usize,
) {
    let (from, from_shape) = from;
    let (to, to_shape) = to;
    let Some((run, outer)) = extent.split_last() else {
        return copy_run(from, 0..item, to, 0);
    };
    let bytes = usize::try_from(*run)
        .unwrap_or(usize::MAX)
        .saturating_mul(item);
    let offset = |start: &[u64], shape: &[u64], index: &[u64]| {
        let last = start.last().copied().unwrap_or(0);
        let outer = start.iter().zip(index).map(|(start, at)| start + at);
        let number = ravel(outer.chain(std::iter::once(last)), shape);
        usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_mul(item)
    };
    each_index(outer, |index| {
        let start = offset(from_start, from_shape, index);
        let range = start..start.saturating_add(bytes);
        copy_run(from, range, to, offset(to_start, to_shape, index));
    });
}

fn copy_run(from: &[u8], range: Range<usize>, to: &mut [u8], start: usize) {
    let end = start.saturating_add(range.len());
    if let (Some(from), Some(to)) = (from.get(range), to.get_mut(start..end)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_region_copies_the_selected_elements() {
        let from: Vec<u8> = (0..24).collect();
        let mut to = vec![99; 12];
        copy_region(
            (&from, &[2, 3, 4]),
            &[0, 1, 2],
            (&mut to, &[2, 2, 3]),
            &[0, 0, 1],
            &[2, 2, 2],
            1,
        );
        assert_eq!(to, [99, 6, 7, 99, 10, 11, 99, 18, 19, 99, 22, 23]);
        let mut pairs = vec![0; 4];
        copy_region(
            (&from, &[3, 4]),
            &[2, 1],
            (&mut pairs, &[2]),
            &[0],
            &[1, 2],
            2,
        );
        assert_eq!(pairs, [18, 19, 20, 21]);
    }
}

//! Reads and checks the whole content of a pool.

use pando::{Error, Pool};

use super::message::{Message, Voice, short};
use super::workload::{self, Records, State};

/// Most problems that are reported; the others are only counted.
const TOLD_PROBLEMS: usize = 5;

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// Reports the content and the problems of `pool`.
pub fn tell(pool: &Pool, voice: &Voice) -> Result<State, Trouble> {
    let report = pool.check()?;
    for problem in report.problems.iter().take(TOLD_PROBLEMS) {
        let text = short(format_args!("{}: {}", problem.class, problem.message));
        voice.say(&Message::Problem(text))?;
    }
    if report.problems.len() > TOLD_PROBLEMS {
        let more = report.problems.len() - TOLD_PROBLEMS;
        voice.say(&Message::Problem(format!("and {more} problems more")))?;
    }
    let state = match state(pool) {
        Ok(state) => state,
        Err(trouble) => {
            voice.say(&Message::Problem(short(trouble)))?;
            State::new()
        }
    };
    for (&map, records) in &state {
        voice.say(&Message::Map { map })?;
        for (&key, &version) in records {
            voice.say(&Message::Record { map, key, version })?;
        }
    }
    voice.say(&Message::Looked)?;
    Ok(state)
}

/// The content of `pool`, each record by a scan and by a get.
pub fn state(pool: &Pool) -> Result<State, Trouble> {
    let mut state = State::new();
    for info in pool.maps()? {
        let number = workload::map_number(&info.name)
            .ok_or_else(|| format!("a map {:?} that no writer created", info.name))?;
        let map = pool.open_map(&info.name)?;
        let mut records = Records::new();
        for record in map.range(..) {
            let (key, value) = record?;
            let place = || format!("map {number}, key {:?}", String::from_utf8_lossy(&key));
            let key_number = workload::key_number(&key)
                .ok_or_else(|| format!("{}: a key that no writer wrote", place()))?;
            let version = workload::version(number, key_number, &value)
                .ok_or_else(|| format!("{}: a torn value, {} bytes", place(), value.len()))?;
            if map.read(&key, |found| *found == value)? != Some(true) {
                return Err(format!("{}: a scan finds it, a get does not", place()).into());
            }
            if records.insert(key_number, version).is_some() {
                return Err(format!("{}: a scan finds it twice", place()).into());
            }
        }
        if map.len()? != records.len() as u64 {
            let (length, count) = (map.len()?, records.len());
            return Err(format!("map {number}: length {length}, records {count}").into());
        }
        state.insert(number, records);
    }
    Ok(state)
}

/// Gets one record of the shared map, if the map exists. Any answer is right.
pub fn first_get(pool: &Pool) -> Result<(), Error> {
    match pool.open_map(&workload::map_name(workload::MAIN)) {
        Ok(map) => map.read(workload::key(0), |_| ()).map(|_| ()),
        Err(Error::MapNotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use pando::MapOptions;

    use super::*;
    use crate::kill::created::INDEXES;
    use crate::kill::workload::{MAIN, Maps, Profile, Style, Writer, map_name, part};

    #[test]
    fn the_library_answers_as_the_model_does() {
        let profiles = [Profile::Mixed, Profile::Growing, Profile::Catalog];
        let each = profiles.iter().flat_map(|&one| INDEXES.map(|kind| (one, kind)));
        for ((profile, kind), is_transactional) in
            each.flat_map(|both| [false, true].map(|is| (both, is)))
        {
            let pool = Pool::volatile(&pando::PoolOptions::new()).unwrap();
            let options = MapOptions::new().index(kind).transactional(is_transactional);
            let main = pool.map_with(&map_name(MAIN), &options).unwrap();
            let maps = Maps { pool: &pool, main: &main, options: &options };
            let style = Style { profile, is_transactional };
            for mut writer in Writer::all(&State::new(), 3, style, 1) {
                for _ in 0..300 {
                    let (op, answer) = writer.step();
                    assert_eq!(op.run(maps).unwrap(), answer, "{op:?}");
                }
                let whole = state(&pool).unwrap();
                assert_eq!(part(&whole, 3, writer.number), writer.state);
            }
        }
    }
}

//! Values of any type of serde, as JSON.

use std::any::type_name;
use std::borrow::{Borrow, Cow};
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::value::{AsValue, Value, ValueError, refused};

/// Values of the type `T` as JSON, for [`TypedMap::with_values`](crate::TypedMap::with_values).
/// Programs in other languages, and `pando get`, read them too. Calls take and return a `T`.
///
/// JSON names the fields of a struct. So a field may be added later, with `#[serde(default)]`, and
/// values that were stored before are read. A write reads its JSON text first, so a value that
/// could not be read is refused: NaN and the infinities, which JSON does not have, unless they may
/// be `None`, and values nested more than 127 deep.
///
/// [`TypedMap::compare_exchange`](crate::TypedMap::compare_exchange) compares the JSON text. A
/// `HashMap` has an order of its own at each time, so use a `BTreeMap` there. A program in another
/// language may write other spaces, so use [`TypedMap::modify`](crate::TypedMap::modify) there.
///
/// ```
/// use pando::{Json, Pool, PoolOptions};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct Tree { name: String, metres: f32 }
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let trees = pool.map("trees")?.typed::<u64>().with_values::<Json<Tree>>();
/// trees.insert(1, Tree { name: "fir".to_owned(), metres: 60.5 })?;
/// trees.entry(1)?.and_modify(|tree| tree.metres += 1.0).or_absent()?;
/// assert_eq!(trees.get(1)?, Some(Tree { name: "fir".to_owned(), metres: 61.5 }));
/// assert_eq!(pool.open_map("trees")?.first()?.unwrap().1, br#"{"name":"fir","metres":61.5}"#);
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Debug)]
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned, Q: Borrow<T>> AsValue<Json<T>> for Q {
    fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError> {
        let bytes = serde_json::to_vec(self.borrow()).and_then(|bytes| {
            // A value that cannot be read is not stored.
            serde_json::from_slice::<T>(&bytes).map(|_| bytes)
        });
        bytes.map(Cow::Owned).map_err(|cause| ValueError::NotEncoded {
            what: type_name::<Json<T>>(),
            cause: cause.into(),
        })
    }
}

impl<T: Serialize + DeserializeOwned> Value for Json<T> {
    type Owned = T;
    type Lent<'bytes> = T;

    fn lend(bytes: &[u8]) -> Result<T, ValueError> {
        serde_json::from_slice(bytes).map_err(|cause| refused(type_name::<Self>(), bytes, cause))
    }

    fn decode(bytes: Vec<u8>) -> Result<T, ValueError> {
        Self::lend(&bytes)
    }
}

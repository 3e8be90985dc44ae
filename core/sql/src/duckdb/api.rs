//! The functions of DuckDB's C API that are used, as `duckdb.h` declares them. Names are those of the header without
//! `duckdb_`.

use std::ffi::{c_char, c_void};

use libloading::Library;

/// An opaque handle: `duckdb_database`, `duckdb_vector`, … are pointers.
pub type Handle = *mut c_void;
/// Number of rows, columns or elements.
pub type Index = u64;
/// `duckdb_state`: 0 is success.
pub type State = i32;
/// `DuckDBSuccess`.
pub const SUCCESS: State = 0;

/// `duckdb_result`. Only `internal_data` is in use by current versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawResult {
    deprecated_column_count: Index,
    deprecated_row_count: Index,
    deprecated_rows_changed: Index,
    deprecated_columns: Handle,
    deprecated_error_message: *mut c_char,
    internal_data: Handle,
}

impl RawResult {
    /// Returns a result that a function of the API can fill in.
    pub fn empty() -> Self {
        RawResult {
            deprecated_column_count: 0,
            deprecated_row_count: 0,
            deprecated_rows_changed: 0,
            deprecated_columns: std::ptr::null_mut(),
            deprecated_error_message: std::ptr::null_mut(),
            internal_data: std::ptr::null_mut(),
        }
    }
}

/// `duckdb_string_t`: up to 12 bytes are inline; of longer texts the first 4, followed by a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawString {
    /// Length in bytes.
    pub length: u32,
    /// The text, or its prefix and the pointer.
    pub rest: [u8; 12],
}

/// `duckdb_hugeint`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawHugeInt {
    /// Lower 64 bits.
    pub lower: u64,
    /// Upper 64 bits with the sign.
    pub upper: i64,
}

/// Numbers of `duckdb_type`.
pub mod types {
    pub const BOOLEAN: u32 = 1;
    pub const TINYINT: u32 = 2;
    pub const SMALLINT: u32 = 3;
    pub const INTEGER: u32 = 4;
    pub const BIGINT: u32 = 5;
    pub const UTINYINT: u32 = 6;
    pub const USMALLINT: u32 = 7;
    pub const UINTEGER: u32 = 8;
    pub const UBIGINT: u32 = 9;
    pub const DOUBLE: u32 = 11;
    pub const TIMESTAMP: u32 = 12;
    pub const HUGEINT: u32 = 16;
    pub const VARCHAR: u32 = 17;
}

/// A destructor that DuckDB calls for data that it was given.
pub type Destroy = unsafe extern "C" fn(Handle);
/// A callback of a table function that gets its bind or init information.
pub type Prepare = unsafe extern "C" fn(Handle);
/// The callback of a table function that fills a chunk.
pub type Produce = unsafe extern "C" fn(Handle, Handle);

macro_rules! api {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, looked up once. They stay valid, because the library is never unloaded.
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// Looks up every function. The error is the name of one that the library lacks.
            ///
            /// # Safety
            ///
            /// The library must be a libduckdb of an accepted version, and must never be unloaded.
            pub unsafe fn of(library: &Library) -> Result<Api, &'static str> {
                Ok(Api {
                    // SAFETY: the signatures are those of duckdb.h, by this function's contract.
                    $($name: *unsafe { library.get($symbol) }.map_err(|_| stringify!($name))?,)*
                })
            }
        }
    };
}

api! {
    create_config = b"duckdb_create_config\0": fn(*mut Handle) -> State;
    set_config = b"duckdb_set_config\0": fn(Handle, *const c_char, *const c_char) -> State;
    destroy_config = b"duckdb_destroy_config\0": fn(*mut Handle);
    open_ext = b"duckdb_open_ext\0": fn(*const c_char, *mut Handle, Handle, *mut *mut c_char) -> State;
    close = b"duckdb_close\0": fn(*mut Handle);
    connect = b"duckdb_connect\0": fn(Handle, *mut Handle) -> State;
    disconnect = b"duckdb_disconnect\0": fn(*mut Handle);
    interrupt = b"duckdb_interrupt\0": fn(Handle);
    free = b"duckdb_free\0": fn(Handle);

    query = b"duckdb_query\0": fn(Handle, *const c_char, *mut RawResult) -> State;
    extract_statements = b"duckdb_extract_statements\0": fn(Handle, *const c_char, *mut Handle) -> Index;
    extract_statements_error = b"duckdb_extract_statements_error\0": fn(Handle) -> *const c_char;
    prepare_extracted_statement =
        b"duckdb_prepare_extracted_statement\0": fn(Handle, Handle, Index, *mut Handle) -> State;
    destroy_extracted = b"duckdb_destroy_extracted\0": fn(*mut Handle);
    prepare_error = b"duckdb_prepare_error\0": fn(Handle) -> *const c_char;
    nparams = b"duckdb_nparams\0": fn(Handle) -> Index;
    prepared_statement_column_count = b"duckdb_prepared_statement_column_count\0": fn(Handle) -> Index;
    prepared_statement_column_name =
        b"duckdb_prepared_statement_column_name\0": fn(Handle, Index) -> *const c_char;
    prepared_statement_column_type = b"duckdb_prepared_statement_column_type\0": fn(Handle, Index) -> u32;
    bind_varchar_length =
        b"duckdb_bind_varchar_length\0": fn(Handle, Index, *const c_char, Index) -> State;
    destroy_prepare = b"duckdb_destroy_prepare\0": fn(*mut Handle);
    pending_prepared_streaming = b"duckdb_pending_prepared_streaming\0": fn(Handle, *mut Handle) -> State;
    pending_error = b"duckdb_pending_error\0": fn(Handle) -> *const c_char;
    execute_pending = b"duckdb_execute_pending\0": fn(Handle, *mut RawResult) -> State;
    destroy_pending = b"duckdb_destroy_pending\0": fn(*mut Handle);

    result_error = b"duckdb_result_error\0": fn(*mut RawResult) -> *const c_char;
    fetch_chunk = b"duckdb_fetch_chunk\0": fn(RawResult) -> Handle;
    destroy_result = b"duckdb_destroy_result\0": fn(*mut RawResult);
    data_chunk_get_size = b"duckdb_data_chunk_get_size\0": fn(Handle) -> Index;
    data_chunk_set_size = b"duckdb_data_chunk_set_size\0": fn(Handle, Index);
    data_chunk_get_vector = b"duckdb_data_chunk_get_vector\0": fn(Handle, Index) -> Handle;
    destroy_data_chunk = b"duckdb_destroy_data_chunk\0": fn(*mut Handle);
    vector_size = b"duckdb_vector_size\0": fn() -> Index;
    vector_get_data = b"duckdb_vector_get_data\0": fn(Handle) -> *mut c_void;
    vector_get_validity = b"duckdb_vector_get_validity\0": fn(Handle) -> *mut u64;
    vector_ensure_validity_writable = b"duckdb_vector_ensure_validity_writable\0": fn(Handle);
    vector_assign_string_element_len =
        b"duckdb_vector_assign_string_element_len\0": fn(Handle, Index, *const c_char, Index);

    create_logical_type = b"duckdb_create_logical_type\0": fn(u32) -> Handle;
    destroy_logical_type = b"duckdb_destroy_logical_type\0": fn(*mut Handle);
    create_table_function = b"duckdb_create_table_function\0": fn() -> Handle;
    destroy_table_function = b"duckdb_destroy_table_function\0": fn(*mut Handle);
    table_function_set_name = b"duckdb_table_function_set_name\0": fn(Handle, *const c_char);
    table_function_set_extra_info =
        b"duckdb_table_function_set_extra_info\0": fn(Handle, Handle, Option<Destroy>);
    table_function_set_bind = b"duckdb_table_function_set_bind\0": fn(Handle, Prepare);
    table_function_set_init = b"duckdb_table_function_set_init\0": fn(Handle, Prepare);
    table_function_set_function = b"duckdb_table_function_set_function\0": fn(Handle, Produce);
    table_function_supports_projection_pushdown =
        b"duckdb_table_function_supports_projection_pushdown\0": fn(Handle, bool);
    register_table_function = b"duckdb_register_table_function\0": fn(Handle, Handle) -> State;
    bind_get_extra_info = b"duckdb_bind_get_extra_info\0": fn(Handle) -> Handle;
    bind_add_result_column = b"duckdb_bind_add_result_column\0": fn(Handle, *const c_char, Handle);
    init_get_extra_info = b"duckdb_init_get_extra_info\0": fn(Handle) -> Handle;
    init_set_init_data = b"duckdb_init_set_init_data\0": fn(Handle, Handle, Option<Destroy>);
    init_get_column_count = b"duckdb_init_get_column_count\0": fn(Handle) -> Index;
    init_get_column_index = b"duckdb_init_get_column_index\0": fn(Handle, Index) -> Index;
    init_set_error = b"duckdb_init_set_error\0": fn(Handle, *const c_char);
    function_get_init_data = b"duckdb_function_get_init_data\0": fn(Handle) -> Handle;
    function_set_error = b"duckdb_function_set_error\0": fn(Handle, *const c_char);
}

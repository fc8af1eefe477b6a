//! Compiles Lua 5.1 and the four libraries that Redis adds to it.

const LIBRARIES: [&str; 6] =
    ["lua_cjson.c", "strbuf.c", "fpconv.c", "lua_cmsgpack.c", "lua_struct.c", "lua_bit.c"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=c");
    let lua = lua_src::Build::new().build(lua_src::Lua51);
    cc::Build::new()
        .include(lua.include_dir())
        .files(LIBRARIES.iter().map(|file| format!("c/{file}")))
        // Redis's choice: `cjson` is a global.
        .define("ENABLE_CJSON_GLOBAL", None)
        .opt_level(2)
        .warnings(false)
        .compile("duramen_lua_libraries");
    // After the libraries, which need it.
    lua.print_cargo_metadata();
}

//! The writer of one function: values in registers, memory, calls, blocks.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    self, AbiParam, Block, FuncRef, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, types,
};
use cranelift_frontend::FunctionBuilder;
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Linkage, Module};

use super::calls::Callee;
use super::machine::{Machine, RowLayout};
use crate::batch::Shape;
use crate::error::{Error, Result};

/// A value in registers. The parts of a NULL are zero or arbitrary; computing with them must not fail.
#[derive(Debug, Clone, Copy)]
pub struct Val {
    /// Its representation in registers.
    pub shape: Shape,
    /// The value, or the address of a text.
    pub a: ir::Value,
    /// The length of a text.
    pub b: Option<ir::Value>,
    /// 1 if it is NULL (a byte); none if it never is.
    pub null: Option<ir::Value>,
}

/// The register type of a shape.
pub fn register(shape: Shape) -> ir::Type {
    match shape {
        Shape::Boolean => types::I8,
        Shape::Int | Shape::Text => types::I64,
        Shape::Float => types::F32,
        Shape::Double => types::F64,
        Shape::Decimal => types::I128,
    }
}

/// Functions that code calls, by name.
pub type Imports = HashMap<&'static str, (FuncId, Callee)>;

/// The module that functions are compiled into.
pub struct Unit {
    /// Cranelift's module.
    pub module: JITModule,
    /// What code works on.
    pub machine: Box<Machine>,
    /// Functions that code calls.
    pub imports: Imports,
}

/// The flags of loads and stores: they never fault, because all addresses are the machine's.
pub fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// One function being written.
pub struct Gen<'f, 'u> {
    /// Cranelift's builder.
    pub b: FunctionBuilder<'f>,
    /// The unit that it belongs to.
    pub unit: &'u mut Unit,
    /// The machine's address: the first parameter.
    pub machine: ir::Value,
    /// The block that failures jump to; its parameter is the code.
    pub fail: Block,
    /// Names of values, for people who read the listing.
    pub names: Vec<(ir::Value, String)>,
    callees: HashMap<&'static str, FuncRef>,
}

impl<'f, 'u> Gen<'f, 'u> {
    /// Begins a function: its parameters are `params` words, the machine first.
    pub fn new(mut b: FunctionBuilder<'f>, unit: &'u mut Unit, params: &[&str]) -> (Self, Vec<ir::Value>) {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let values = b.block_params(entry).to_vec();
        let fail = b.create_block();
        b.set_cold_block(fail);
        b.append_block_param(fail, types::I64);
        let names = values.iter().zip(params).map(|(value, name)| (*value, (*name).to_owned())).collect();
        let r#gen = Gen { b, unit, machine: values[0], fail, names, callees: HashMap::new() };
        (r#gen, values)
    }

    /// Ends the function: returns zero, and writes the block that failures jump to.
    pub fn finish(mut self) -> Vec<(ir::Value, String)> {
        let zero = self.int(0);
        self.b.ins().return_(&[zero]);
        self.b.switch_to_block(self.fail);
        let code = self.b.block_params(self.fail)[0];
        let machine = self.machine;
        self.call("fail", &[machine, code]);
        let one = self.int(1);
        self.b.ins().return_(&[one]);
        self.b.seal_all_blocks();
        let config = self.unit.module.target_config();
        self.b.finalize(config);
        self.names
    }

    /// A constant.
    pub fn int(&mut self, value: i64) -> ir::Value {
        self.b.ins().iconst(types::I64, value)
    }

    /// A truth value.
    pub fn truth(&mut self, value: bool) -> ir::Value {
        self.b.ins().iconst(types::I8, i64::from(value))
    }

    /// Gives a value its name in listings.
    pub fn name(&mut self, value: ir::Value, name: impl Into<String>) {
        self.names.push((value, name.into()));
    }

    /// Loads a word.
    pub fn load(&mut self, address: ir::Value, offset: usize) -> ir::Value {
        self.b.ins().load(types::I64, trusted(), address, offset as i32)
    }

    /// Stores a value of any type.
    pub fn store(&mut self, value: ir::Value, address: ir::Value, offset: usize) {
        self.b.ins().store(trusted(), value, address, offset as i32);
    }

    /// Calls a function of [`calls`](super::calls).
    pub fn call(&mut self, name: &'static str, args: &[ir::Value]) -> Option<ir::Value> {
        let callee = match self.callees.get(name) {
            Some(callee) => *callee,
            None => {
                let (id, _) = self.unit.imports[name];
                let callee = self.unit.module.declare_func_in_func(id, self.b.func);
                self.callees.insert(name, callee);
                callee
            }
        };
        let call = self.b.ins().call(callee, args);
        self.b.inst_results(call).first().copied()
    }

    /// Calls a function that returns a word.
    pub fn ask(&mut self, name: &'static str, args: &[ir::Value]) -> ir::Value {
        match self.call(name, args) {
            Some(value) => value,
            None => self.int(0),
        }
    }

    /// Jumps to the failure block if a word is not zero; code 0 means that the error is already recorded.
    pub fn fail_if(&mut self, condition: ir::Value, code: i64) {
        let next = self.b.create_block();
        let code = self.int(code);
        self.b.ins().brif(condition, self.fail, &[code.into()], next, &[]);
        self.b.switch_to_block(next);
    }

    /// A stack slot of this many words.
    pub fn stack(&mut self, words: usize) -> ir::Value {
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(
            StackSlotKind::ExplicitSlot,
            (words * 8) as u32,
            3,
        ));
        self.b.ins().stack_addr(types::I64, slot, 0)
    }

    /// Compares integers, or truth values.
    pub fn icmp(&mut self, code: IntCC, a: ir::Value, b: ir::Value) -> ir::Value {
        self.b.ins().icmp(code, a, b)
    }

    /// Whether a word is zero.
    pub fn is_zero(&mut self, value: ir::Value) -> ir::Value {
        self.b.ins().icmp_imm_s(IntCC::Equal, value, 0)
    }

    /// Negates a truth value.
    pub fn not(&mut self, value: ir::Value) -> ir::Value {
        self.b.ins().bxor_imm_s(value, 1)
    }

    /// The OR of two truth values, either of which may be missing.
    pub fn either(&mut self, a: Option<ir::Value>, b: Option<ir::Value>) -> Option<ir::Value> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.b.ins().bor(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// A value of zeros.
    pub fn zero(&mut self, shape: Shape) -> Val {
        let a = match shape {
            Shape::Boolean => self.truth(false),
            Shape::Int | Shape::Text => self.int(0),
            Shape::Float => self.b.ins().f32const(0.0),
            Shape::Double => self.b.ins().f64const(0.0),
            Shape::Decimal => self.wide(0),
        };
        let b = (shape == Shape::Text).then(|| self.int(0));
        Val { shape, a, b, null: None }
    }

    /// A constant of 128 bits.
    pub fn wide(&mut self, value: i128) -> ir::Value {
        let low = self.int(value as i64);
        let high = self.int((value >> 64) as i64);
        self.b.ins().iconcat(low, high)
    }

    /// An integer.
    pub fn val(&self, a: ir::Value) -> Val {
        Val { shape: Shape::Int, a, b: None, null: None }
    }

    /// A truth value.
    pub fn boolean(&self, a: ir::Value, null: Option<ir::Value>) -> Val {
        Val { shape: Shape::Boolean, a, b: None, null }
    }

    /// Whether it is TRUE and not NULL.
    pub fn is_true(&mut self, val: Val) -> ir::Value {
        match val.null {
            Some(null) => self.b.ins().band_not(val.a, null),
            None => val.a,
        }
    }

    /// A block that takes a value of this shape, nullable or not; also returns the value in it.
    pub fn join_block(&mut self, shape: Shape, nullable: bool) -> (Block, Val) {
        let block = self.b.create_block();
        let a = self.b.append_block_param(block, register(shape));
        let b = (shape == Shape::Text).then(|| self.b.append_block_param(block, types::I64));
        let null = nullable.then(|| self.b.append_block_param(block, types::I8));
        (block, Val { shape, a, b, null })
    }

    /// Jumps to a block of [`Gen::join_block`] with a value.
    pub fn jump_with(&mut self, block: Block, val: Val, nullable: bool) {
        let mut args: Vec<ir::BlockArg> = vec![val.a.into()];
        args.extend(val.b.map(ir::BlockArg::from));
        if nullable {
            let null = match val.null {
                Some(null) => null,
                None => self.truth(false),
            };
            args.push(null.into());
        }
        self.b.ins().jump(block, &args);
    }

    /// Runs `then` if a truth value is 1, and continues after it in both cases.
    pub fn when(&mut self, condition: ir::Value, then: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let (yes, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(condition, yes, &[], after, &[]);
        self.b.switch_to_block(yes);
        then(self)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Runs `then` unless the value is NULL.
    pub fn unless_null(&mut self, val: Val, then: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        match val.null {
            None => then(self),
            Some(null) => {
                let there = self.not(null);
                self.when(there, then)
            }
        }
    }

    /// The words of a value as stored in memory.
    pub fn words(&mut self, val: Val) -> Vec<ir::Value> {
        match val.shape {
            Shape::Boolean => vec![self.b.ins().uextend(types::I64, val.a)],
            Shape::Int => vec![val.a],
            Shape::Float => {
                let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), val.a);
                vec![self.b.ins().uextend(types::I64, bits)]
            }
            Shape::Double => vec![self.b.ins().bitcast(types::I64, MemFlagsData::new(), val.a)],
            Shape::Decimal => {
                let (low, high) = self.b.ins().isplit(val.a);
                vec![low, high]
            }
            Shape::Text => val.b.into_iter().fold(vec![val.a], |mut words, length| {
                words.push(length);
                words
            }),
        }
    }

    /// The value that these words hold.
    pub fn of_words(&mut self, shape: Shape, words: &[ir::Value]) -> Val {
        let a = match shape {
            Shape::Boolean => self.b.ins().ireduce(types::I8, words[0]),
            Shape::Int | Shape::Text => words[0],
            Shape::Float => {
                let bits = self.b.ins().ireduce(types::I32, words[0]);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
            }
            Shape::Double => self.b.ins().bitcast(types::F64, MemFlagsData::new(), words[0]),
            Shape::Decimal => self.b.ins().iconcat(words[0], words[1]),
        };
        Val { shape, a, b: (shape == Shape::Text).then(|| words[1]), null: None }
    }

    /// Stores a value's words.
    pub fn put(&mut self, val: Val, address: ir::Value, word: usize) {
        for (index, value) in self.words(val).into_iter().enumerate() {
            self.store(value, address, (word + index) * 8);
        }
    }

    /// Loads a value's words.
    pub fn get(&mut self, shape: Shape, address: ir::Value, word: usize) -> Val {
        let words: Vec<ir::Value> =
            (0..shape.words()).map(|index| self.load(address, (word + index) * 8)).collect();
        self.of_words(shape, &words)
    }

    /// Loads a text whose place is relative to `bytes`.
    pub fn get_in(&mut self, shape: Shape, address: ir::Value, word: usize, bytes: ir::Value) -> Val {
        let mut val = self.get(shape, address, word);
        if shape == Shape::Text {
            val.a = self.b.ins().iadd(bytes, val.a);
        }
        val
    }

    /// A word with a bit for each value that may be NULL, from bit `first` on.
    pub fn null_bits(&mut self, vals: &[Val], nullable: &[bool]) -> ir::Value {
        let mut word = self.int(0);
        for (bit, (val, nullable)) in vals.iter().zip(nullable).enumerate() {
            if let (Some(null), true) = (val.null, nullable) {
                let wide = self.b.ins().uextend(types::I64, null);
                let wide = self.b.ins().ishl_imm_s(wide, bit as i64);
                word = self.b.ins().bor(word, wide);
            }
        }
        word
    }

    /// Bit `bit` of a word as a truth value.
    pub fn bit(&mut self, word: ir::Value, bit: usize) -> ir::Value {
        let shifted = self.b.ins().ushr_imm_s(word, bit as i64);
        let low = self.b.ins().ireduce(types::I8, shifted);
        self.b.ins().band_imm_s(low, 1)
    }

    /// Stores a whole row.
    pub fn put_row(&mut self, vals: &[Val], layout: &RowLayout, address: ir::Value) {
        for (word, fields) in vals.chunks(64).zip(layout.fields.chunks(64)).enumerate() {
            let nullable: Vec<bool> = fields.1.iter().map(|(_, nullable, _)| *nullable).collect();
            let bits = self.null_bits(fields.0, &nullable);
            self.store(bits, address, (layout.head + word) * 8);
        }
        for (val, (.., word)) in vals.iter().zip(&layout.fields) {
            self.put(*val, address, *word);
        }
    }

    /// Loads a whole row whose texts are relative to `bytes`.
    pub fn get_row(&mut self, layout: &RowLayout, address: ir::Value, bytes: ir::Value) -> Vec<Val> {
        let mut vals = Vec::new();
        for (index, fields) in layout.fields.chunks(64).enumerate() {
            let bits = self.load(address, (layout.head + index) * 8);
            for (bit, (shape, nullable, word)) in fields.iter().enumerate() {
                let mut val = self.get_in(*shape, address, *word, bytes);
                if *nullable {
                    val.null = Some(self.bit(bits, bit));
                }
                vals.push(val);
            }
        }
        vals
    }

    /// Compares two non-NULL values of one shape as SQL does: every comparison with NaN is false except `<>`.
    pub fn compare(&mut self, code: IntCC, x: Val, y: Val) -> ir::Value {
        match x.shape {
            Shape::Boolean => {
                let unsigned = code.unsigned();
                self.icmp(unsigned, x.a, y.a)
            }
            Shape::Int | Shape::Decimal => self.icmp(code, x.a, y.a),
            Shape::Float | Shape::Double => {
                let code = match code {
                    IntCC::Equal => FloatCC::Equal,
                    IntCC::NotEqual => FloatCC::NotEqual,
                    IntCC::SignedLessThan => FloatCC::LessThan,
                    IntCC::SignedLessThanOrEqual => FloatCC::LessThanOrEqual,
                    IntCC::SignedGreaterThan => FloatCC::GreaterThan,
                    _ => FloatCC::GreaterThanOrEqual,
                };
                self.b.ins().fcmp(code, x.a, y.a)
            }
            Shape::Text => {
                let args = [x.a, x.b.unwrap_or(x.a), y.a, y.b.unwrap_or(y.a)];
                match code {
                    IntCC::Equal | IntCC::NotEqual => {
                        let equal = self.equal_text(args);
                        if code == IntCC::Equal { equal } else { self.not(equal) }
                    }
                    _ => {
                        let order = self.ask("compare_text", &args);
                        self.b.ins().icmp_imm_s(code, order, 0)
                    }
                }
            }
        }
    }

    /// Whether two texts are equal; the lengths are compared inline first.
    fn equal_text(&mut self, args: [ir::Value; 4]) -> ir::Value {
        let after = self.b.create_block();
        let equal = self.b.append_block_param(after, types::I8);
        let bytes = self.b.create_block();
        let lengths = self.icmp(IntCC::Equal, args[1], args[3]);
        self.b.ins().brif(lengths, bytes, &[], after, &[lengths.into()]);
        self.b.switch_to_block(bytes);
        let same = self.ask("equal_text", &args);
        let same = self.b.ins().ireduce(types::I8, same);
        self.b.ins().jump(after, &[same.into()]);
        self.b.switch_to_block(after);
        equal
    }

    /// The order of grouping and MIN: NaN is the greatest, and equal to itself.
    pub fn before(&mut self, x: Val, y: Val) -> ir::Value {
        let less = self.compare(IntCC::SignedLessThan, x, y);
        match x.shape {
            Shape::Float | Shape::Double => {
                let nan = self.b.ins().fcmp(FloatCC::Unordered, y.a, y.a);
                let number = self.b.ins().fcmp(FloatCC::Ordered, x.a, x.a);
                let last = self.b.ins().band(nan, number);
                self.b.ins().bor(less, last)
            }
            _ => less,
        }
    }

    /// Equality of grouping: NaN is equal to itself.
    pub fn same(&mut self, x: Val, y: Val) -> ir::Value {
        let equal = self.compare(IntCC::Equal, x, y);
        match x.shape {
            Shape::Float | Shape::Double => {
                let a = self.b.ins().fcmp(FloatCC::Unordered, x.a, x.a);
                let b = self.b.ins().fcmp(FloatCC::Unordered, y.a, y.a);
                let both = self.b.ins().band(a, b);
                self.b.ins().bor(equal, both)
            }
            _ => equal,
        }
    }

    /// Whether two values are equal, or both NULL.
    pub fn identical(&mut self, x: Val, y: Val) -> ir::Value {
        let same = self.same(x, y);
        match self.nulls(x, y) {
            None => same,
            Some((a, b)) => {
                let neither = self.b.ins().bor(a, b);
                let both = self.b.ins().band(a, b);
                let valued = self.b.ins().band_not(same, neither);
                self.b.ins().bor(valued, both)
            }
        }
    }

    fn nulls(&mut self, x: Val, y: Val) -> Option<(ir::Value, ir::Value)> {
        if x.null.is_none() && y.null.is_none() {
            return None;
        }
        let a = match x.null {
            Some(null) => null,
            None => self.truth(false),
        };
        let b = match y.null {
            Some(null) => null,
            None => self.truth(false),
        };
        Some((a, b))
    }

    /// Selects one of two values.
    pub fn choose(&mut self, condition: ir::Value, x: Val, y: Val) -> Val {
        let a = match x.shape {
            Shape::Decimal => {
                let (x_low, x_high) = self.b.ins().isplit(x.a);
                let (y_low, y_high) = self.b.ins().isplit(y.a);
                let low = self.b.ins().select(condition, x_low, y_low);
                let high = self.b.ins().select(condition, x_high, y_high);
                self.b.ins().iconcat(low, high)
            }
            _ => self.b.ins().select(condition, x.a, y.a),
        };
        let b = match (x.b, y.b) {
            (Some(x), Some(y)) => Some(self.b.ins().select(condition, x, y)),
            _ => None,
        };
        let null = self.nulls(x, y).map(|(x, y)| self.b.ins().select(condition, x, y));
        Val { shape: x.shape, a, b, null }
    }
}

/// A new function of the module: takes words, returns a word.
pub fn declare(module: &mut JITModule, name: &str, params: usize) -> Result<(FuncId, ir::Signature)> {
    let mut signature = module.make_signature();
    signature.params.extend(std::iter::repeat_n(AbiParam::new(types::I64), params));
    signature.returns.push(AbiParam::new(types::I64));
    let id = module.declare_function(name, Linkage::Local, &signature).map_err(broken)?;
    Ok((id, signature))
}

/// An error of Cranelift, which is a fault of this crate.
pub fn broken(error: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("this query (the code generator failed: {error})"))
}

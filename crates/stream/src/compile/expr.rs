//! Code of expressions. [`eval`](crate::expr::eval) defines what each one means.
//!
//! Integers, decimals within 38 digits, approximate numbers, truth values, times, comparisons, branches and casts of
//! numbers are compiled to instructions. A function of one text whose other arguments are constants becomes a call of
//! the function prepared for these constants. Everything else calls the same function that the interpreter uses.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::calls::{DIVISION_BY_ZERO, UNITS};
use super::emit::{Gen, Val};
use super::machine::{Generic, RowLayout};
use super::texts::{FormatSlot, PreparedSlot};
use crate::batch::Shape;
use crate::error::{Error, Result};
use crate::expr::{Expr, Op};
use crate::function::Prepared;
use crate::types::time::{DAY_MICROS, MILLI_MICROS, Pattern, Unit};
use crate::types::{DataType, Type, Value, decimal};

/// Whether an expression gives a value for every row in a few instructions, so that it may be computed even where it is
/// not needed.
fn is_plain(expr: &Expr) -> bool {
    let own = match expr {
        Expr::Column(..) | Expr::Literal(..) => true,
        Expr::Op(op, args, ty) => match op {
            Op::And | Op::Or | Op::Not | Op::IsNull | Op::IsTrue | Op::IsFalse => true,
            Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
                !args.iter().any(|arg| arg.ty().data.is_character())
            }
            Op::Add | Op::Subtract | Op::Multiply | Op::Negate => {
                ty.data.is_integer() || ty.data.is_approximate() || ty.data.is_timestamp()
            }
            _ => false,
        },
        Expr::Cast { expr, ty, .. } => expr.ty().data.is_integer() && ty.data.is_integer(),
        Expr::Call(..) | Expr::Case(..) => false,
    };
    own && expr.children().into_iter().all(is_plain)
}

fn wide(ty: &DataType) -> bool {
    ty.is_interval()
}

impl Gen<'_, '_> {
    /// Code of an expression over a row.
    pub fn expr(&mut self, expr: &Expr, row: &[Val]) -> Result<Val> {
        match expr {
            Expr::Column(index, _) => row.get(*index).copied().ok_or_else(|| {
                Error::evaluation(format!("a row of {} columns has no column {index}", row.len()))
            }),
            Expr::Literal(value, ty) => self.literal(value, &ty.data),
            Expr::Op(op, args, ty) => self.operator(*op, args, ty, expr, row),
            Expr::Case(branches, otherwise, ty) => self.case(branches, otherwise, ty, row),
            Expr::Cast { expr: inner, ty, .. } => {
                let val = self.expr(inner, row)?;
                match self.cast(val, &inner.ty().data, &ty.data)? {
                    Some(val) => Ok(val),
                    None => self.generic(expr, &[val]),
                }
            }
            Expr::Call(function, args, ty) => {
                let vals: Result<Vec<Val>> = args.iter().map(|arg| self.expr(arg, row)).collect();
                let vals = vals?;
                match self.function(function.name, args, &vals, ty) {
                    Some(val) => Ok(val),
                    None => self.generic(expr, &vals),
                }
            }
        }
    }

    /// A constant.
    pub fn literal(&mut self, value: &Value, ty: &DataType) -> Result<Val> {
        let shape = Shape::of(ty)?;
        let mut val = self.zero(shape);
        match value {
            Value::Null => val.null = Some(self.truth(true)),
            Value::Boolean(value) => val.a = self.truth(*value),
            Value::Int(value) => val.a = self.int(*value),
            Value::Float(value) => val.a = self.b.ins().f32const(*value),
            Value::Double(value) => val.a = self.b.ins().f64const(*value),
            Value::Decimal(value) => val.a = self.wide(*value),
            Value::String(text) => self.constant(text.as_bytes(), &mut val),
            Value::Bytes(text) => self.constant(text, &mut val),
            Value::Array(_) | Value::Row(_) => {
                return Err(Error::unsupported(format!("compiling a constant of type {ty}")));
            }
        }
        Ok(val)
    }

    fn constant(&mut self, text: &[u8], val: &mut Val) {
        let kept: Box<[u8]> = text.into();
        val.a = self.int(kept.as_ptr() as i64);
        val.b = Some(self.int(text.len() as i64));
        self.name(val.a, format!("'{}'", String::from_utf8_lossy(text)));
        self.unit.machine.constants.push(kept);
    }

    /// Calls the interpreter's function of one node whose arguments are already computed.
    fn generic(&mut self, expr: &Expr, vals: &[Val]) -> Result<Val> {
        let shape = Shape::of(&expr.ty().data)?;
        if let Some(val) = self.prepared(expr, vals, shape) {
            return Ok(val);
        }
        let children = expr.children();
        let fields: Vec<(Shape, bool)> = vals.iter().map(|val| (val.shape, val.null.is_some())).collect();
        let layout = RowLayout::new(0, &fields);
        let types: Vec<DataType> = children.iter().map(|child| child.ty().data.clone()).collect();
        // The node itself, with columns in place of its arguments.
        let mut next = 0;
        let node = expr.clone().map_children(&mut |child| {
            next += 1;
            Expr::Column(next - 1, child.ty().clone())
        });
        let args =
            layout.fields.iter().zip(types).map(|((shape, _, word), ty)| (*shape, ty, *word)).collect();
        let number = self.unit.machine.generics.len();
        self.unit.machine.generics.push(Generic { expr: node, args, shape });
        let place = self.stack(layout.words.max(1));
        self.put_row(vals, &layout, place);
        let out = self.stack(2);
        let number = self.int(number as i64);
        let machine = self.machine;
        let answer = self.ask("generic", &[machine, number, place, out]);
        let name = match expr {
            Expr::Call(function, ..) => function.name.to_owned(),
            Expr::Cast { ty, .. } => format!("CAST AS {}", ty.data),
            Expr::Op(op, ..) => format!("{op:?}"),
            _ => String::new(),
        };
        self.name(answer, name);
        let failed = self.b.ins().icmp_imm_s(IntCC::Equal, answer, 2);
        self.fail_if(failed, 0);
        let mut val = self.get(shape, out, 0);
        val.null = Some(self.b.ins().ireduce(types::I8, answer));
        // The parts of a NULL come from the stack: zero.
        Ok(val)
    }

    fn case(&mut self, branches: &[(Expr, Expr)], otherwise: &Expr, ty: &Type, row: &[Val]) -> Result<Val> {
        let shape = Shape::of(&ty.data)?;
        let (after, result) = self.join_block(shape, true);
        for (condition, value) in branches {
            let condition = self.expr(condition, row)?;
            let condition = self.is_true(condition);
            let (yes, no) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(condition, yes, &[], no, &[]);
            self.b.switch_to_block(yes);
            let value = self.expr(value, row)?;
            let value = self.shaped(value, shape);
            self.jump_with(after, value, true);
            self.b.switch_to_block(no);
        }
        let value = self.expr(otherwise, row)?;
        let value = self.shaped(value, shape);
        self.jump_with(after, value, true);
        self.b.switch_to_block(after);
        Ok(result)
    }

    /// Converts a value to this shape: only a bare NULL has another shape.
    fn shaped(&mut self, val: Val, shape: Shape) -> Val {
        if val.shape == shape {
            return val;
        }
        let zero = self.zero(shape);
        Val { null: val.null, ..zero }
    }

    fn operator(&mut self, op: Op, args: &[Expr], ty: &Type, expr: &Expr, row: &[Val]) -> Result<Val> {
        match op {
            Op::And | Op::Or => return self.logic(op == Op::Or, args, row),
            Op::Coalesce => {
                let shape = Shape::of(&ty.data)?;
                let (after, result) = self.join_block(shape, true);
                for arg in args {
                    let val = self.expr(arg, row)?;
                    let val = self.shaped(val, shape);
                    let Some(null) = val.null else {
                        self.jump_with(after, val, true);
                        // The code after this is never reached.
                        let dead = self.b.create_block();
                        self.b.switch_to_block(dead);
                        continue;
                    };
                    let (next, there) = (self.b.create_block(), self.b.create_block());
                    self.b.ins().brif(null, next, &[], there, &[]);
                    self.b.switch_to_block(there);
                    self.jump_with(after, Val { null: None, ..val }, true);
                    self.b.switch_to_block(next);
                }
                let mut none = self.zero(shape);
                none.null = Some(self.truth(true));
                self.jump_with(after, none, true);
                self.b.switch_to_block(after);
                return Ok(result);
            }
            _ => {}
        }
        let vals: Result<Vec<Val>> = args.iter().map(|arg| self.expr(arg, row)).collect();
        let vals = vals?;
        match (op, vals.as_slice()) {
            (Op::IsNull, [val]) => {
                let a = match val.null {
                    Some(null) => null,
                    None => self.truth(false),
                };
                Ok(self.boolean(a, None))
            }
            (Op::IsTrue, [val]) => {
                let a = self.is_true(*val);
                Ok(self.boolean(a, None))
            }
            (Op::IsFalse, [val]) => {
                let mut a = self.not(val.a);
                if let Some(null) = val.null {
                    a = self.b.ins().band_not(a, null);
                }
                Ok(self.boolean(a, None))
            }
            (Op::Same, [x, y]) if x.shape == y.shape => {
                let a = self.identical(*x, *y);
                Ok(self.boolean(a, None))
            }
            (Op::In, [val, list @ ..]) if list.iter().all(|item| item.shape == val.shape) => {
                let mut found = self.truth(false);
                let mut unknown: Option<ir::Value> = None;
                for item in list {
                    let mut equal = self.compare(IntCC::Equal, *val, *item);
                    if let Some(null) = item.null {
                        equal = self.b.ins().band_not(equal, null);
                    }
                    found = self.b.ins().bor(found, equal);
                    unknown = self.either(unknown, item.null);
                }
                let unknown = unknown.map(|unknown| self.b.ins().band_not(unknown, found));
                let null = self.either(unknown, val.null);
                Ok(self.boolean(found, null))
            }
            (Op::Not, [val]) => {
                let a = self.not(val.a);
                Ok(self.boolean(a, val.null))
            }
            (
                Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual,
                [x, y],
            ) if x.shape == y.shape => {
                let code = match op {
                    Op::Equal => IntCC::Equal,
                    Op::NotEqual => IntCC::NotEqual,
                    Op::Less => IntCC::SignedLessThan,
                    Op::LessEqual => IntCC::SignedLessThanOrEqual,
                    Op::Greater => IntCC::SignedGreaterThan,
                    _ => IntCC::SignedGreaterThanOrEqual,
                };
                let null = self.either(x.null, y.null);
                let a = self.compare(code, *x, *y);
                Ok(self.boolean(a, null))
            }
            // A longer chain would copy its prefix again for each operand.
            (Op::Concat, vals) if vals.len() <= 4 && vals.iter().all(|val| val.shape == Shape::Text) => {
                self.concat(vals)
            }
            (Op::Greatest | Op::Least, [first, rest @ ..])
                if vals.iter().all(|val| val.shape == first.shape) =>
            {
                let mut best = *first;
                let mut null = first.null;
                for val in rest {
                    let wanted =
                        if op == Op::Least { self.before(*val, best) } else { self.before(best, *val) };
                    best = self.choose(wanted, *val, best);
                    null = self.either(null, val.null);
                }
                Ok(Val { null, ..best })
            }
            (Op::Negate, [val]) => match val.shape {
                Shape::Int => {
                    let a = self.b.ins().ineg(val.a);
                    let a = self.wrapped(a, &ty.data);
                    Ok(Val { a, ..*val })
                }
                Shape::Float | Shape::Double => Ok(Val { a: self.b.ins().fneg(val.a), ..*val }),
                Shape::Decimal => {
                    let zero = self.wide(0);
                    Ok(Val { a: self.b.ins().isub(zero, val.a), ..*val })
                }
                _ => self.generic(expr, &vals),
            },
            // A longer sum adds each operand to the partial result of those before it, which has the result's type.
            (Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Remainder, [first, rest @ ..]) => {
                let mut value = *first;
                let mut left = &args[0].ty().data;
                for (val, arg) in rest.iter().zip(&args[1..]) {
                    match self.arithmetic(op, value, *val, [left, &arg.ty().data], &ty.data)? {
                        Some(next) => (value, left) = (next, &ty.data),
                        None => return self.generic(expr, &vals),
                    }
                }
                Ok(value)
            }
            _ => self.generic(expr, &vals),
        }
    }

    /// AND, or OR. Arguments after the one that decides are not computed, unless computing them is quicker and cannot
    /// fail.
    fn logic(&mut self, decides: bool, args: &[Expr], row: &[Val]) -> Result<Val> {
        let (done, result) = self.join_block(Shape::Boolean, true);
        let mut known = self.truth(!decides);
        let mut unknown = self.truth(false);
        // From here on all arguments are plain.
        let plain = args.iter().rposition(|arg| !is_plain(arg)).map_or(0, |last| last + 1);
        for (index, arg) in args.iter().enumerate() {
            let val = self.expr(arg, row)?;
            // Whether this argument decides: FALSE for AND, TRUE for OR, and not NULL.
            let mut decided = if decides { val.a } else { self.not(val.a) };
            if let Some(null) = val.null {
                decided = self.b.ins().band_not(decided, null);
                unknown = self.b.ins().bor(unknown, null);
            }
            if index + 1 < plain {
                let next = self.b.create_block();
                let (value, null) = (self.truth(decides), self.truth(false));
                self.b.ins().brif(decided, done, &[value.into(), null.into()], next, &[]);
                self.b.switch_to_block(next);
            } else {
                known = if decides {
                    self.b.ins().bor(known, decided)
                } else {
                    self.b.ins().band_not(known, decided)
                };
            }
        }
        // If an argument decided, unknown arguments do not matter.
        let null =
            if decides { self.b.ins().band_not(unknown, known) } else { self.b.ins().band(unknown, known) };
        let val = self.boolean(known, Some(null));
        self.jump_with(done, val, true);
        self.b.switch_to_block(done);
        Ok(result)
    }

    fn concat(&mut self, vals: &[Val]) -> Result<Val> {
        let mut whole = vals[0];
        for val in &vals[1..] {
            let out = self.stack(1);
            let machine = self.machine;
            let (x, y) = (whole.b.unwrap_or(whole.a), val.b.unwrap_or(val.a));
            let a = self.ask("concat", &[machine, whole.a, x, val.a, y, out]);
            let failed = self.b.ins().icmp_imm_s(IntCC::Equal, a, 0);
            self.fail_if(failed, 0);
            let b = self.load(out, 0);
            let null = self.either(whole.null, val.null);
            whole = Val { shape: Shape::Text, a, b: Some(b), null };
        }
        Ok(whole)
    }

    /// Truncates an integer to the bits of its type.
    pub fn wrapped(&mut self, value: ir::Value, ty: &DataType) -> ir::Value {
        let narrow = match ty {
            DataType::TinyInt => types::I8,
            DataType::SmallInt => types::I16,
            DataType::Int => types::I32,
            _ => return value,
        };
        let cut = self.b.ins().ireduce(narrow, value);
        self.b.ins().sextend(types::I64, cut)
    }

    fn arithmetic(
        &mut self,
        op: Op,
        x: Val,
        y: Val,
        [left, right]: [&DataType; 2],
        ty: &DataType,
    ) -> Result<Option<Val>> {
        let null = self.either(x.null, y.null);
        let a = match (x.shape, y.shape) {
            (Shape::Int, Shape::Int) if wide(left) || wide(right) => {
                match self.moment(op, x.a, y.a, left, right) {
                    Some(a) => a,
                    None => return Ok(None),
                }
            }
            (Shape::Int, Shape::Int) => {
                let a = match op {
                    Op::Add => self.b.ins().iadd(x.a, y.a),
                    Op::Subtract => self.b.ins().isub(x.a, y.a),
                    Op::Multiply => self.b.ins().imul(x.a, y.a),
                    _ => self.divide(op == Op::Remainder, x.a, y.a, null),
                };
                self.wrapped(a, ty)
            }
            (Shape::Float, Shape::Float) | (Shape::Double, Shape::Double) => match op {
                Op::Add => self.b.ins().fadd(x.a, y.a),
                Op::Subtract => self.b.ins().fsub(x.a, y.a),
                Op::Multiply => self.b.ins().fmul(x.a, y.a),
                Op::Divide => self.b.ins().fdiv(x.a, y.a),
                _ if x.shape == Shape::Double => {
                    let (x, y) = (self.words(x)[0], self.words(y)[0]);
                    let rest = self.ask("fmod", &[x, y]);
                    self.of_words(Shape::Double, &[rest]).a
                }
                _ => return Ok(None),
            },
            (Shape::Decimal, Shape::Decimal) => return Ok(self.decimal(op, x, y, [left, right], ty)),
            _ => return Ok(None),
        };
        Ok(Some(Val { shape: x.shape, a, b: None, null }))
    }

    /// Quotient or remainder of integers. A divisor of zero fails, unless the result is NULL anyway.
    fn divide(&mut self, rest: bool, x: ir::Value, y: ir::Value, null: Option<ir::Value>) -> ir::Value {
        let mut zero = self.is_zero(y);
        if let Some(null) = null {
            zero = self.b.ins().band_not(zero, null);
        }
        self.fail_if(zero, DIVISION_BY_ZERO);
        // The least integer divided by -1 wraps, where the instruction would trap; so does the zero of a NULL.
        let minus = self.b.ins().icmp_imm_s(IntCC::Equal, y, -1);
        let mut odd = minus;
        if let Some(null) = null {
            odd = self.b.ins().bor(odd, null);
        }
        let one = self.int(1);
        let safe = self.b.ins().select(odd, one, y);
        if rest {
            // Division by 1 or -1 leaves the remainder zero.
            self.b.ins().srem(x, safe)
        } else {
            let quotient = self.b.ins().sdiv(x, safe);
            let negative = self.b.ins().ineg(x);
            self.b.ins().select(minus, negative, quotient)
        }
    }

    /// A date, time, timestamp or interval plus or minus an interval, or an interval times a number.
    fn moment(
        &mut self,
        op: Op,
        x: ir::Value,
        y: ir::Value,
        left: &DataType,
        right: &DataType,
    ) -> Option<ir::Value> {
        let y = if op == Op::Subtract { self.b.ins().ineg(y) } else { y };
        Some(match (left, right) {
            _ if op == Op::Multiply => self.b.ins().imul(x, y),
            (DataType::Date | DataType::Time(_), _) => return None,
            (left, DataType::IntervalMonths) if left.is_timestamp() => return None,
            (left, _) if left.is_timestamp() => {
                let micros = self.b.ins().imul_imm_s(y, MILLI_MICROS);
                self.b.ins().iadd(x, micros)
            }
            _ => self.b.ins().iadd(x, y),
        })
    }

    /// Sums and products of decimals whose type has room for every result; `None` where digits may be lost.
    fn decimal(
        &mut self,
        op: Op,
        x: Val,
        y: Val,
        [left, right]: [&DataType; 2],
        ty: &DataType,
    ) -> Option<Val> {
        let null = self.either(x.null, y.null);
        let ((p1, s1), (p2, s2), (p, s)) = (left.as_decimal()?, right.as_decimal()?, ty.as_decimal()?);
        let whole = (p1 - s1).max(p2 - s2);
        let a = match op {
            Op::Add | Op::Subtract if s == s1.max(s2) && whole + s < p => {
                let (x, y) = (self.scaled(x.a, s - s1)?, self.scaled(y.a, s - s2)?);
                if op == Op::Add { self.b.ins().iadd(x, y) } else { self.b.ins().isub(x, y) }
            }
            Op::Multiply if s == s1 + s2 && p1 + p2 <= p => self.b.ins().imul(x.a, y.a),
            _ => return None,
        };
        Some(Val { shape: Shape::Decimal, a, b: None, null })
    }

    /// A decimal rescaled to this many more digits after the point.
    fn scaled(&mut self, value: ir::Value, digits: u8) -> Option<ir::Value> {
        if digits == 0 {
            return Some(value);
        }
        let unit = self.wide(decimal::power_of_ten(digits.into())?);
        Some(self.b.ins().imul(value, unit))
    }

    /// A cast for which code is generated; `None` for one that is a call.
    fn cast(&mut self, val: Val, from: &DataType, to: &DataType) -> Result<Option<Val>> {
        let shape = Shape::of(to)?;
        if *from == DataType::Null {
            return Ok(Some(self.shaped(val, shape)));
        }
        if from == to {
            return Ok(Some(val));
        }
        let with = |a: ir::Value| Ok(Some(Val { shape, a, b: None, null: val.null }));
        match (from, to) {
            (from, to) if from.is_integer() && to.is_integer() => {
                let a = self.wrapped(val.a, to);
                with(a)
            }
            (from, DataType::Double) if from.is_integer() => {
                let a = self.b.ins().fcvt_from_sint(types::F64, val.a);
                with(a)
            }
            (from, DataType::Float) if from.is_integer() => {
                let a = self.b.ins().fcvt_from_sint(types::F32, val.a);
                with(a)
            }
            (from, DataType::Boolean) if from.is_integer() => {
                let a = self.b.ins().icmp_imm_s(IntCC::NotEqual, val.a, 0);
                with(a)
            }
            (DataType::Boolean, to) if to.is_integer() => {
                let a = self.b.ins().uextend(types::I64, val.a);
                with(a)
            }
            (DataType::Float, DataType::Double) => {
                let a = self.b.ins().fpromote(types::F64, val.a);
                with(a)
            }
            (DataType::Double, DataType::Float) => {
                let a = self.b.ins().fdemote(types::F32, val.a);
                with(a)
            }
            (DataType::Double, DataType::BigInt) => {
                let a = self.b.ins().fcvt_to_sint_sat(types::I64, val.a);
                with(a)
            }
            (DataType::Double, to) if to.is_integer() => {
                let a = self.b.ins().fcvt_to_sint_sat(types::I32, val.a);
                let a = self.b.ins().sextend(types::I64, a);
                let a = self.wrapped(a, to);
                with(a)
            }
            (from, DataType::Decimal { precision, scale }) => {
                let Some((p, s)) = from.as_decimal() else { return Ok(None) };
                // Every value fits, and no digit is lost.
                if *scale < s || precision - scale < p - s {
                    return Ok(None);
                }
                let wide = match val.shape {
                    Shape::Int => self.b.ins().sextend(types::I128, val.a),
                    _ => val.a,
                };
                match self.scaled(wide, scale - s) {
                    Some(a) => with(a),
                    None => Ok(None),
                }
            }
            (from, to) if from.is_timestamp() && to.is_timestamp() => {
                let digits = |ty: &DataType| match ty {
                    DataType::Timestamp(digits) | DataType::TimestampLtz(digits) => *digits,
                    _ => 0,
                };
                if digits(from) <= digits(to) { with(val.a) } else { Ok(None) }
            }
            (DataType::Date, to) if to.is_timestamp() => {
                let a = self.b.ins().imul_imm_s(val.a, DAY_MICROS);
                with(a)
            }
            // Every value has this length already.
            (from, DataType::Varchar(to)) if from.is_character() => match from {
                DataType::Char(length) | DataType::Varchar(length) if length <= to => Ok(Some(val)),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// A function for which code is generated; `None` for one that is a call.
    fn function(&mut self, name: &str, args: &[Expr], vals: &[Val], ty: &Type) -> Option<Val> {
        match (name, vals) {
            ("PROCTIME", []) => {
                let clock = self.int(std::ptr::from_ref(&*self.unit.machine.clock) as i64);
                let now = self.load(clock, 0);
                // The type has milliseconds, and the clock's values are whole milliseconds already.
                Some(self.val(now))
            }
            ("ABS", [val]) if val.shape == Shape::Int => {
                let negative = self.b.ins().ineg(val.a);
                let below = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, val.a, 0);
                let a = self.b.ins().select(below, negative, val.a);
                let a = self.wrapped(a, &ty.data);
                Some(Val { a, ..*val })
            }
            ("OCTET_LENGTH", [val]) if val.shape == Shape::Text => {
                val.b.map(|length| Val { shape: Shape::Int, a: length, b: None, null: val.null })
            }
            ("EXTRACT", [_, val]) => {
                let unit = Unit::parse(constant_text(args.first()?)?)?;
                let a = match &args.get(1)?.ty().data {
                    DataType::Date => self.b.ins().imul_imm_s(val.a, DAY_MICROS),
                    DataType::Time(_) => self.b.ins().imul_imm_s(val.a, MILLI_MICROS),
                    _ => val.a,
                };
                let a = self.part(unit, a)?;
                Some(Val { a, ..*val })
            }
            ("DATE_FORMAT", [val, _]) => {
                let pattern = Pattern::read(constant_text(args.get(1)?)?).ok()?;
                Some(self.formatted(*val, pattern))
            }
            _ => None,
        }
    }

    /// A field of a timestamp: a few instructions for the fields of the time of day.
    fn part(&mut self, unit: Unit, moment: ir::Value) -> Option<ir::Value> {
        let (size, count) = match unit {
            Unit::Millisecond => (MILLI_MICROS, 1000),
            Unit::Second => (1_000_000, 60),
            Unit::Minute => (60_000_000, 60),
            Unit::Hour => (3_600_000_000, 24),
            _ => {
                let number = UNITS.iter().position(|known| *known == unit)?;
                let number = self.int(number as i64);
                return Some(self.ask("extract", &[number, moment]));
            }
        };
        let rest = self.rest(moment, size * count);
        let size = self.int(size);
        Some(self.b.ins().udiv(rest, size))
    }

    /// Formats a timestamp. The last text made is reused for as long as it stays the same.
    fn formatted(&mut self, moment: Val, pattern: Pattern) -> Val {
        let formats = &mut self.unit.machine.texts.formats;
        formats.push(Box::new(FormatSlot::new(pattern)));
        let number = formats.len() - 1;
        let slot = std::ptr::from_ref(&*formats[number]) as i64;
        let slot = self.int(slot);
        self.name(slot, format!("format {number}"));
        let from = self.load(slot, offset_of!(FormatSlot, from));
        let to = self.load(slot, offset_of!(FormatSlot, to));
        let since = self.icmp(IntCC::SignedGreaterThanOrEqual, moment.a, from);
        let until = self.icmp(IntCC::SignedLessThan, moment.a, to);
        let same = self.b.ins().band(since, until);
        let (other, known) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(other);
        self.b.ins().brif(same, known, &[], other, &[]);
        self.b.switch_to_block(other);
        let (machine, number) = (self.machine, self.int(number as i64));
        self.call("format", &[machine, number, moment.a]);
        self.b.ins().jump(known, &[]);
        self.b.switch_to_block(known);
        let a = self.load(slot, offset_of!(FormatSlot, text));
        let b = self.load(slot, offset_of!(FormatSlot, bytes));
        Val { shape: Shape::Text, a, b: Some(b), null: moment.null }
    }

    /// A call of a function of a text whose other arguments are constants; `None` for any other.
    fn prepared(&mut self, expr: &Expr, vals: &[Val], shape: Shape) -> Option<Val> {
        let (text, length) = match vals.first() {
            Some(val) if val.shape == Shape::Text => (*val, val.b?),
            _ => return None,
        };
        let function = Prepared::of(expr)?;
        let makes = function.makes();
        // Equal calls with the same argument share the last result.
        let mut slots = self.unit.machine.texts.prepared.iter();
        let number = match slots.position(|slot| slot.expr == *expr) {
            Some(number) => number,
            None => {
                self.unit.machine.texts.prepared.push(PreparedSlot::new(expr.clone(), function));
                self.unit.machine.texts.prepared.len() - 1
            }
        };
        let name = match expr {
            Expr::Call(function, ..) => function.name.to_owned(),
            Expr::Op(op, ..) => format!("{op:?}"),
            _ => String::new(),
        };
        let (machine, number) = (self.machine, self.int(number as i64));
        if shape != Shape::Text {
            let word = self.ask("prepared_word", &[machine, number, text.a, length]);
            self.name(word, name);
            return Some(Val { null: text.null, ..self.of_words(shape, &[word]) });
        }
        let out = self.stack(2);
        let answer = self.ask("prepared_text", &[machine, number, text.a, length, out]);
        self.name(answer, name);
        if makes {
            let failed = self.b.ins().icmp_imm_s(IntCC::Equal, answer, 2);
            self.fail_if(failed, 0);
        }
        let answer = self.b.ins().ireduce(types::I8, answer);
        let val = self.get(shape, out, 0);
        Some(Val { null: self.either(Some(answer), text.null), ..val })
    }
}

fn constant_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.as_str(),
        _ => None,
    }
}

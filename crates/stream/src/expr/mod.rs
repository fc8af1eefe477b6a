//! Typed expressions over the columns of one row. All casts are explicit: the arguments of an operator already have the
//! types that it computes with.

mod eval;

use std::collections::BTreeSet;

pub use eval::eval;

use crate::function::Function;
use crate::types::{DataType, Type, Value};

/// An expression over a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// The column with this index.
    Column(usize, Type),
    /// A constant.
    Literal(Value, Type),
    /// An operator.
    Op(Op, Vec<Expr>, Type),
    /// A function of the registry.
    Call(&'static Function, Vec<Expr>, Type),
    /// The first branch whose condition is TRUE, else the last expression.
    Case(Vec<(Expr, Expr)>, Box<Expr>, Type),
    /// CAST, or TRY_CAST, which is NULL where CAST fails.
    Cast {
        /// The argument.
        expr: Box<Expr>,
        /// The target type.
        ty: Type,
        /// Whether a failed cast gives NULL.
        safe: bool,
    },
}

/// Sizes of expressions, to limit inlining them in place of columns.
pub struct Extents(Vec<(usize, usize)>);

impl Extents {
    /// Sizes of these expressions.
    pub fn of<'e>(inner: impl Iterator<Item = &'e Expr>) -> Extents {
        Extents(inner.map(|expr| expr.extent(&|_| (1, 1))).collect())
    }

    /// Whether an expression with these in place of its columns stays small and flat enough to be walked quickly and on
    /// the stack. A chain of views, each of which uses a column twice, doubles in size with each view.
    pub fn allow(&self, expr: &Expr) -> bool {
        // As many parts as a statement has tokens, and some times the depth that the binder allows.
        const PARTS_MAX: usize = 200_000;
        const DEPTH_MAX: usize = 1000;
        let (parts, depth) = expr.extent(&|index| self.0.get(index).copied().unwrap_or((1, 1)));
        parts <= PARTS_MAX && depth <= DEPTH_MAX
    }
}

/// Operators. Arithmetic of two numbers is in the type of the result. DECIMAL is the exception: each argument keeps its
/// own type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    And,
    Or,
    Not,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Equal, where NULL equals NULL.
    Same,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Negate,
    IsNull,
    IsTrue,
    IsFalse,
    /// The first argument is equal to one of the others.
    In,
    /// Text, pattern, and escape if given.
    Like,
    Similar,
    /// A text is JSON of the kind that the second argument names.
    IsJson,
    Concat,
    /// The first non-NULL argument.
    Coalesce,
    /// NULL if an argument is NULL.
    Greatest,
    Least,
    /// The field with this index of a row.
    Field(usize),
    /// The element of an array at a place, from 1; NULL outside.
    Element,
    /// An array or a row of the arguments.
    Array,
    Row,
}

impl Op {
    fn symbol(self) -> &'static str {
        match self {
            Op::And => "AND",
            Op::Or => "OR",
            Op::Equal => "=",
            Op::NotEqual => "<>",
            Op::Less => "<",
            Op::LessEqual => "<=",
            Op::Greater => ">",
            Op::GreaterEqual => ">=",
            Op::Same => "IS NOT DISTINCT FROM",
            Op::Add => "+",
            Op::Subtract => "-",
            Op::Multiply => "*",
            Op::Divide => "/",
            Op::Remainder => "%",
            Op::Concat => "||",
            Op::Not => "NOT",
            Op::Negate => "-",
            Op::IsNull => "IS NULL",
            Op::IsTrue => "IS TRUE",
            Op::IsFalse => "IS FALSE",
            Op::In => "IN",
            Op::Like => "LIKE",
            Op::Similar => "SIMILAR TO",
            Op::IsJson => "IS JSON",
            Op::Coalesce => "COALESCE",
            Op::Greatest => "GREATEST",
            Op::Least => "LEAST",
            Op::Field(_) => "FIELD",
            Op::Element => "ELEMENT",
            Op::Array => "ARRAY",
            Op::Row => "ROW",
        }
    }

    /// The comparison with its sides exchanged.
    pub fn mirrored(self) -> Option<Op> {
        Some(match self {
            Op::Equal => Op::Equal,
            Op::NotEqual => Op::NotEqual,
            Op::Less => Op::Greater,
            Op::LessEqual => Op::GreaterEqual,
            Op::Greater => Op::Less,
            Op::GreaterEqual => Op::LessEqual,
            _ => return None,
        })
    }
}

impl Expr {
    /// Its type.
    pub fn ty(&self) -> &Type {
        match self {
            Expr::Column(_, ty)
            | Expr::Literal(_, ty)
            | Expr::Op(_, _, ty)
            | Expr::Call(_, _, ty)
            | Expr::Case(_, _, ty)
            | Expr::Cast { ty, .. } => ty,
        }
    }

    /// A truth value constant.
    pub fn boolean(value: bool) -> Expr {
        Expr::Literal(Value::Boolean(value), Type::not_null(DataType::Boolean))
    }

    /// A NULL of a type.
    pub fn null(data: DataType) -> Expr {
        Expr::Literal(Value::Null, Type::nullable(data))
    }

    /// A text constant.
    pub fn text(text: &str) -> Expr {
        Expr::Literal(Value::string(text), Type::not_null(DataType::Char(text.chars().count() as u32)))
    }

    /// An operator whose result is a truth value, or NULL if an argument may be NULL.
    pub fn truth(op: Op, args: Vec<Expr>) -> Expr {
        let nullable = args.iter().any(|arg| arg.ty().nullable);
        Expr::Op(op, args, Type { data: DataType::Boolean, nullable })
    }

    /// This expression as a value of type `data`, with a cast if it has another type.
    #[must_use]
    pub fn cast_to(self, data: &DataType) -> Expr {
        if self.ty().data == *data {
            return self;
        }
        // A cast to DECIMAL gives NULL where the value does not fit, whatever the source type.
        let fits = match (self.ty().data.as_decimal(), data.as_decimal()) {
            (Some((p1, s1)), Some((p2, s2))) => p1 - s1 <= p2 - s2 && s1 <= s2,
            _ => !matches!(data, DataType::Decimal { .. }),
        };
        let ty = Type { data: data.clone(), nullable: self.ty().nullable || !fits };
        match self {
            Expr::Literal(Value::Null, _) => Expr::Literal(Value::Null, ty),
            expr => Expr::Cast { expr: Box::new(expr), ty, safe: false },
        }
    }

    /// Its direct subexpressions.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Column(..) | Expr::Literal(..) => Vec::new(),
            Expr::Op(_, args, _) | Expr::Call(_, args, _) => args.iter().collect(),
            Expr::Case(branches, otherwise, _) => {
                let pairs = branches.iter().flat_map(|(condition, result)| [condition, result]);
                pairs.chain([&**otherwise]).collect()
            }
            Expr::Cast { expr, .. } => vec![expr],
        }
    }

    /// The same expression with each direct subexpression replaced.
    #[must_use]
    pub fn map_children(self, map: &mut dyn FnMut(Expr) -> Expr) -> Expr {
        match self {
            Expr::Column(..) | Expr::Literal(..) => self,
            Expr::Op(op, args, ty) => Expr::Op(op, args.into_iter().map(map).collect(), ty),
            Expr::Call(function, args, ty) => Expr::Call(function, args.into_iter().map(map).collect(), ty),
            Expr::Case(branches, otherwise, ty) => {
                let branches =
                    branches.into_iter().map(|(condition, result)| (map(condition), map(result))).collect();
                Expr::Case(branches, Box::new(map(*otherwise)), ty)
            }
            Expr::Cast { expr, ty, safe } => Expr::Cast { expr: Box::new(map(*expr)), ty, safe },
        }
    }

    /// The same expression with each column replaced.
    #[must_use]
    pub fn map_columns(self, map: &dyn Fn(usize, Type) -> Expr) -> Expr {
        match self {
            Expr::Column(index, ty) => map(index, ty),
            other => other.map_children(&mut |child| child.map_columns(map)),
        }
    }

    /// The same expression over a row in which columns have moved: `place(old)` is the new index.
    #[must_use]
    pub fn renumber(self, place: &dyn Fn(usize) -> usize) -> Expr {
        self.map_columns(&|index, ty| Expr::Column(place(index), ty))
    }

    /// The columns that it reads.
    pub fn columns(&self) -> BTreeSet<usize> {
        let mut columns = BTreeSet::new();
        self.visit(&mut |expr| {
            if let Expr::Column(index, _) = expr {
                columns.insert(*index);
            }
        });
        columns
    }

    /// Calls `see` with each subexpression, itself first.
    pub fn visit<'e>(&'e self, see: &mut dyn FnMut(&'e Expr)) {
        see(self);
        for child in self.children() {
            child.visit(see);
        }
    }

    /// The number of its subexpressions, itself included, and their depth. Columns stand for expressions whose sizes
    /// are in `of`.
    fn extent(&self, of: &dyn Fn(usize) -> (usize, usize)) -> (usize, usize) {
        if let Expr::Column(index, _) = self {
            return of(*index);
        }
        let (mut parts, mut depth) = (1usize, 0);
        for child in self.children() {
            let (more, deep) = child.extent(of);
            (parts, depth) = (parts.saturating_add(more), depth.max(deep));
        }
        (parts, depth + 1)
    }

    /// Whether equal rows always give equal values.
    pub fn is_deterministic(&self) -> bool {
        let mut deterministic = true;
        self.visit(&mut |expr| {
            if let Expr::Call(function, ..) = expr {
                deterministic &= function.deterministic;
            }
        });
        deterministic
    }

    /// Whether it may fail on some row: only then it matters for which rows it is computed.
    pub fn may_fail(&self) -> bool {
        let mut fails = false;
        self.visit(&mut |expr| {
            fails |= match expr {
                Expr::Call(function, ..) => function.fails,
                Expr::Op(Op::Divide | Op::Remainder, args, ty) => {
                    !ty.data.is_approximate() && !args.get(1).is_some_and(Expr::is_nonzero)
                }
                // An escape character may be followed by one that needs no escape, which is an error.
                Expr::Op(Op::Like, args, _) => args.len() > 2,
                Expr::Op(Op::Similar, ..) => true,
                Expr::Cast { expr, ty, safe } => {
                    let from = &expr.ty().data;
                    !safe
                        && (!from.is_numeric() && !from.is_timestamp() && from != &DataType::Boolean)
                        && !ty.data.is_character()
                }
                _ => false,
            };
        });
        fails
    }

    /// Whether it is a constant number other than zero.
    fn is_nonzero(&self) -> bool {
        match self {
            Expr::Literal(Value::Int(value), _) => *value != 0,
            Expr::Literal(Value::Decimal(value), _) => *value != 0,
            // Widening an integer does not change its value.
            Expr::Cast { expr, ty, .. } => {
                let wider =
                    expr.ty().data.is_integer() && ty.data.fixed_bytes() >= expr.ty().data.fixed_bytes();
                wider && ty.data.as_decimal().is_some_and(|(_, scale)| scale == 0) && expr.is_nonzero()
            }
            _ => false,
        }
    }

    /// The operands of its ANDs, from left to right.
    pub fn conjuncts(self) -> Vec<Expr> {
        match self {
            Expr::Op(Op::And, args, _) => args.into_iter().flat_map(Expr::conjuncts).collect(),
            other => vec![other],
        }
    }

    /// The AND of these expressions; `None` if there are none.
    pub fn conjunction(conjuncts: impl IntoIterator<Item = Expr>) -> Option<Expr> {
        let mut conjuncts: Vec<Expr> = conjuncts.into_iter().collect();
        if conjuncts.len() > 1 { Some(Expr::truth(Op::And, conjuncts)) } else { conjuncts.pop() }
    }

    /// Its text in SQL, with names for columns.
    pub fn sql(&self, name: &dyn Fn(usize) -> String) -> String {
        let list = |args: &[Expr]| args.iter().map(|arg| arg.sql(name)).collect::<Vec<_>>().join(", ");
        match self {
            Expr::Column(index, _) => name(*index),
            Expr::Literal(value, ty) => match (value, &ty.data) {
                (Value::Null, _) => "NULL".to_owned(),
                (value, data) if data.is_character() => format!("'{}'", value.text(data).replace('\'', "''")),
                (value, DataType::Date) => format!("DATE '{}'", value.text(&ty.data)),
                (value, DataType::Time(_)) => format!("TIME '{}'", value.text(&ty.data)),
                (value, DataType::Timestamp(_)) => format!("TIMESTAMP '{}'", value.text(&ty.data)),
                (value, DataType::TimestampLtz(_)) => format!("TIMESTAMP_LTZ '{}'", value.text(&ty.data)),
                (value, data) if data.is_interval() => format!("INTERVAL '{}'", value.text(&ty.data)),
                (value, data) => value.text(data),
            },
            Expr::Op(op, args, _) => match (op, args.as_slice()) {
                (Op::Not, [arg]) => format!("NOT {}", arg.sql(name)),
                (Op::Negate, [arg]) => format!("-{}", arg.sql(name)),
                (Op::IsNull | Op::IsTrue | Op::IsFalse, [arg]) => {
                    format!("{} {}", arg.sql(name), op.symbol())
                }
                (Op::In, [first, rest @ ..]) => format!("{} IN ({})", first.sql(name), list(rest)),
                (Op::Field(index), [arg]) => {
                    let field = match &arg.ty().data {
                        DataType::Row(fields) => fields.get(*index).map_or("", |(name, _)| name),
                        _ => "",
                    };
                    format!("{}.{field}", arg.sql(name))
                }
                (Op::Element, [array, index]) => format!("{}[{}]", array.sql(name), index.sql(name)),
                (Op::Array, args) => format!("ARRAY[{}]", list(args)),
                (Op::Like | Op::Similar, [text, pattern, escape]) => {
                    format!(
                        "({} {} {} ESCAPE {})",
                        text.sql(name),
                        op.symbol(),
                        pattern.sql(name),
                        escape.sql(name)
                    )
                }
                (Op::Coalesce | Op::Greatest | Op::Least | Op::Row, args) => {
                    format!("{}({})", op.symbol(), list(args))
                }
                (_, [a, b]) => format!("({} {} {})", a.sql(name), op.symbol(), b.sql(name)),
                // As nested pairs from left to right, which it means.
                (Op::And | Op::Or | Op::Add | Op::Concat, [first, rest @ ..]) if !rest.is_empty() => {
                    let mut text = "(".repeat(rest.len()) + &first.sql(name);
                    for arg in rest {
                        text.push_str(&format!(" {} {})", op.symbol(), arg.sql(name)));
                    }
                    text
                }
                (_, args) => format!("{}({})", op.symbol(), list(args)),
            },
            Expr::Call(function, args, _) => format!("{}({})", function.name, list(args)),
            Expr::Case(branches, otherwise, _) => {
                let mut text = String::from("CASE");
                for (condition, result) in branches {
                    text.push_str(&format!(" WHEN {} THEN {}", condition.sql(name), result.sql(name)));
                }
                format!("{text} ELSE {} END", otherwise.sql(name))
            }
            Expr::Cast { expr, ty, safe } => {
                let cast = if *safe { "TRY_CAST" } else { "CAST" };
                format!("{cast}({} AS {})", expr.sql(name), ty.data)
            }
        }
    }
}

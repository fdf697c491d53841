// Launches a kernel from Python with no Python code on the way: arguments, checks, grid, driver call.
//
// One launcher serves every kernel. It is a built-in function whose `self` is a tuple:
//   0  bytes: the words below, then a kind per argument, then the grid as postfix code
//   1  what to call instead when an assumption about an argument does not hold, with the same arguments
//   2  what gives a tensor's address     3  what gives a device's current stream, as an integer
//   4  the device's index                5  the kernel's name           6  the class of our errors
// No headers: Python's stable ABI and CUDA's driver are declared by hand, and both are bound at run
// time, so a compiler is all that is needed.

typedef struct object object;
typedef long long i64;
typedef unsigned long long u64;

extern object _Py_NoneStruct;
extern object *PyObject_Vectorcall(object *, object *const *, unsigned long, object *);
extern object *PyTuple_GetItem(object *, long);
extern char *PyBytes_AsString(object *);
extern i64 PyLong_AsLongLong(object *);
extern u64 PyLong_AsUnsignedLongLong(object *);
extern double PyFloat_AsDouble(object *);
extern object *PyErr_Occurred(void);
extern object *PyErr_Format(object *, const char *, ...);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern void Py_IncRef(object *);
extern void Py_DecRef(object *);

enum { MOST = 256, STACK = 32 };
enum { POINTER, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, KIND = 15, DIVISOR = 4 };
enum { CONSTANT, ARGUMENT, ADD, SUBTRACT, MULTIPLY, FLOOR_DIVIDE, MODULO, CEIL_DIVIDE, MINIMUM, MAXIMUM };

// CUlaunchConfig with its attributes: 6 is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
enum { BEFORE_THE_LAST_ENDS = 6 };
struct attribute { int id, padding, value[16]; };
struct config {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct attribute *attributes;
    unsigned count;
};

struct words {
    i64 function, context, threads, shared, together, early, count, given;  // `given` of `count` are the kernel's own
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*launch_with)(const struct config *, void *, void **, void **);
    int (*launch_together)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
    int (*get_context)(void **);
    int (*push_context)(void *);
    int (*pop_context)(void **);
    int (*error_name)(int, const char **);
};

static i64 floor_divide(i64 a, i64 b) {
    i64 quotient = a / b;
    return a % b && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// Three extents from postfix code; 0 if it divides by zero.
static int evaluate(const i64 *code, const i64 *integers, i64 *grid) {
    i64 expressions = *code++;
    for (i64 n = 0; n < 3; n++) {
        i64 stack[STACK];
        int top = 0;
        grid[n] = 1;
        if (n >= expressions) continue;
        for (i64 pairs = *code++; pairs > 0; pairs--) {
            i64 operation = *code++, operand = *code++;
            if (operation == CONSTANT) { stack[top++] = operand; continue; }
            if (operation == ARGUMENT) { stack[top++] = integers[operand]; continue; }
            i64 b = stack[--top], a = stack[top - 1];
            if ((operation == FLOOR_DIVIDE || operation == MODULO || operation == CEIL_DIVIDE) && b == 0) return 0;
            switch (operation) {
                case ADD: a += b; break;
                case SUBTRACT: a -= b; break;
                case MULTIPLY: a *= b; break;
                case FLOOR_DIVIDE: a = floor_divide(a, b); break;
                case MODULO: a -= floor_divide(a, b) * b; break;
                case CEIL_DIVIDE: a = -floor_divide(-a, b); break;
                case MINIMUM: a = a < b ? a : b; break;
                default: a = a > b ? a : b;
            }
            stack[top - 1] = a;
        }
        grid[n] = stack[0];
    }
    return 1;
}

static object *launch(object *self, object *const *args, long count) {
    const struct words *w = (const struct words *)PyBytes_AsString(PyTuple_GetItem(self, 0));
    const i64 *kinds = (const i64 *)(w + 1);
    object *name = PyTuple_GetItem(self, 5), *failure = PyTuple_GetItem(self, 6);
    object *address_of = PyTuple_GetItem(self, 2);
    if (count != w->count) return PyErr_Format(failure, "kernel %U takes %d arguments, got %d.", name, (int)w->given, (int)count);

    u64 values[MOST + 2];
    void *parameters[MOST + 2];
    u64 misfits = 0;
    for (long n = 0; n < count; n++) {
        i64 kind = kinds[n], low, high, value;
        parameters[n] = &values[n];
        switch (kind & KIND) {
            case POINTER: {
                object *address = PyObject_Vectorcall(address_of, &args[n], 1, 0);
                if (!address) return 0;
                values[n] = PyLong_AsUnsignedLongLong(address);
                Py_DecRef(address);
                misfits |= values[n] & (u64)(kind >> DIVISOR);
                continue;
            }
            case F32: {
                union { float number; unsigned bits; } single = { (float)PyFloat_AsDouble(args[n]) };
                values[n] = single.bits;
                if (PyErr_Occurred()) return 0;
                continue;
            }
            case F64: {
                union { double number; u64 bits; } wide = { PyFloat_AsDouble(args[n]) };
                values[n] = wide.bits;
                if (PyErr_Occurred()) return 0;
                continue;
            }
            case U64:
                values[n] = PyLong_AsUnsignedLongLong(args[n]);
                if (values[n] == (u64)-1 && PyErr_Occurred()) return 0;
                misfits |= values[n] & (u64)(kind >> DIVISOR);
                continue;
            case I8: low = -128; high = 127; break;
            case I16: low = -32768; high = 32767; break;
            case I32: low = -2147483647 - 1; high = 2147483647; break;
            case U8: low = 0; high = 255; break;
            case U16: low = 0; high = 65535; break;
            case U32: low = 0; high = 4294967295; break;
            default: low = -9223372036854775807 - 1; high = 9223372036854775807;
        }
        value = PyLong_AsLongLong(args[n]);
        if (value == -1 && PyErr_Occurred()) return 0;
        if (value < low || value > high)
            return PyErr_Format(failure, "argument %d of kernel %U does not hold %lld.", (int)n, name, value);
        values[n] = (u64)value;
        misfits |= values[n] & (u64)(kind >> DIVISOR);
    }
    if (misfits) return PyObject_Vectorcall(PyTuple_GetItem(self, 1), args, (unsigned long)count, 0);
    // Triton gives every function two more: scratch memory (the last of our arguments, if it takes any)
    // and a profiler's. The driver reads as many parameters as the function has.
    for (long n = count; n < w->given + 2; n++) {
        values[n] = 0;
        parameters[n] = &values[n];
    }

    i64 grid[3];
    if (!evaluate(kinds + w->count, (const i64 *)values, grid))
        return PyErr_Format(failure, "the grid of kernel %U divides by zero.", name);
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) { Py_IncRef(&_Py_NoneStruct); return &_Py_NoneStruct; }
    if (grid[0] < 0 || grid[1] < 0 || grid[2] < 0 || grid[0] > 2147483647 || grid[1] > 65535 || grid[2] > 65535)
        return PyErr_Format(failure, "kernel %U cannot have a grid of (%lld, %lld, %lld).", name, grid[0], grid[1], grid[2]);

    object *device = PyTuple_GetItem(self, 4);
    object *stream = PyObject_Vectorcall(PyTuple_GetItem(self, 3), &device, 1, 0);
    if (!stream) return 0;
    void *queue = (void *)PyLong_AsUnsignedLongLong(stream);
    Py_DecRef(stream);

    void *before = 0, *function = (void *)w->function;
    w->get_context(&before);
    int pushed = before != (void *)w->context;  // another device, or a thread that has had none so far
    if (pushed) w->push_context((void *)w->context);
    void *thread = PyEval_SaveThread();  // a full queue makes the driver wait
    static const struct attribute before_the_last_ends = { BEFORE_THE_LAST_ENDS, 0, { 1 } };
    struct config early = { { grid[0], grid[1], grid[2] }, { w->threads, 1, 1 }, w->shared, queue, &before_the_last_ends, 1 };
    int status = w->together
        ? w->launch_together(function, grid[0], grid[1], grid[2], w->threads, 1, 1, w->shared, queue, parameters)
        : w->early
        ? w->launch_with(&early, function, parameters, 0)
        : w->launch(function, grid[0], grid[1], grid[2], w->threads, 1, 1, w->shared, queue, parameters, 0);
    PyEval_RestoreThread(thread);
    if (pushed) w->pop_context(&before);
    if (status) {
        const char *told = 0;
        w->error_name(status, &told);
        return PyErr_Format(failure, "kernel %U cannot be launched with the grid (%lld, %lld, %lld): %s.",
                            name, grid[0], grid[1], grid[2], told ? told : "unknown error");
    }
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

struct method {
    const char *name;
    object *(*function)(object *, object *const *, long);
    int flags;  // METH_FASTCALL
    const char *help;
};
struct method nbcompile_launch = { "launch", launch, 0x80, "Launch a Triton kernel on the device's current stream." };

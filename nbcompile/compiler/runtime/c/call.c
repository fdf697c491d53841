// Calls a C kernel from Python with no Python code on the way: takes tensors' addresses and integers.
//
// One caller serves every kernel. It is a built-in function whose `self` is a tuple:
//   0  bytes: the words below            1  the kernel's name           2  the class of our errors
//   3  what every tensor is an instance of                              4  int
// No headers: Python's stable ABI is declared by hand, so a compiler is all that is needed.

typedef struct object object;
typedef long long i64;

extern object _Py_NoneStruct;
extern object *PyTuple_GetItem(object *, long);
extern char *PyBytes_AsString(object *);
extern object *PyObject_Type(object *);
extern int PyObject_IsInstance(object *, object *);
extern i64 PyLong_AsLongLong(object *);
extern object *PyErr_Occurred(void);
extern object *PyErr_Format(object *, const char *, ...);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern void Py_IncRef(object *);
extern void Py_DecRef(object *);

enum { MOST = 64 };

struct words {
    void *kernel;
    void *(*address_of)(object *);  // torch's, of a tensor
    i64 count;
};

// A function of fewer arguments leaves those that are too many alone: they lie where it does not look, and
// whoever calls takes them away (System V's and ARM's calling conventions).
#define I4 i64, i64, i64, i64
#define I16 I4, I4, I4, I4
#define V4(n) v[n], v[n + 1], v[n + 2], v[n + 3]
#define V16(n) V4(n), V4(n + 4), V4(n + 8), V4(n + 12)

static void run(void *kernel, i64 count, const i64 *v) {
    if (count <= 4) ((void (*)(I4))kernel)(V4(0));
    else if (count <= 8) ((void (*)(I4, I4))kernel)(V4(0), V4(4));
    else if (count <= 16) ((void (*)(I16))kernel)(V16(0));
    else if (count <= 32) ((void (*)(I16, I16))kernel)(V16(0), V16(16));
    else ((void (*)(I16, I16, I16, I16))kernel)(V16(0), V16(16), V16(32), V16(48));
}

static object *call(object *self, object *const *args, long count) {
    const struct words *w = (const struct words *)PyBytes_AsString(PyTuple_GetItem(self, 0));
    object *name = PyTuple_GetItem(self, 1), *failure = PyTuple_GetItem(self, 2);
    object *tensor = PyTuple_GetItem(self, 3), *integer = PyTuple_GetItem(self, 4);
    if (count != w->count) return PyErr_Format(failure, "kernel %U takes %d arguments, got %d.", name, (int)w->count, (int)count);

    i64 values[MOST] = { 0 };
    for (long n = 0; n < count; n++) {
        object *type = PyObject_Type(args[n]);
        Py_DecRef(type);  // args[n] keeps it
        if (type == integer) {
            values[n] = PyLong_AsLongLong(args[n]);
            if (values[n] == -1 && PyErr_Occurred()) return 0;
            continue;
        }
        int known = type == tensor ? 1 : PyObject_IsInstance(args[n], tensor);
        if (known < 0) return 0;
        if (!known) return PyErr_Format(failure, "argument %d of kernel %U is neither a tensor nor an integer.", (int)n, name);
        values[n] = (i64)w->address_of(args[n]);
    }
    void *thread = PyEval_SaveThread();
    run(w->kernel, count, values);
    PyEval_RestoreThread(thread);
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

struct method {
    const char *name;
    object *(*function)(object *, object *const *, long);
    int flags;  // METH_FASTCALL
    const char *help;
};
struct method nbcompile_call = { "call", call, 0x80, "Call a C kernel." };
